package embedded

import (
	"sync/atomic"

	"github.com/keelson-dev/keelson/storage"
)

// spaceWatch knows how much of the reserve of free space is left. It is looked up
// once a second and whenever much was written since.
type spaceWatch struct {
	level   atomic.Int32
	written atomic.Int64 // bytes since the last check
}

const (
	spaceEnough   = iota
	spaceLow      // below the reserve: only deletions
	spaceCritical // below a quarter of it: nothing
)

// spaceCheckBytes is how much may be written between two checks. What is written
// to the log is written again by a flush and by compactions.
const spaceCheckBytes = 4 << 20

// check looks the free space up.
func (w *spaceWatch) check(s *Store) {
	w.written.Store(0)
	if s.opts.ReserveBytes < 0 {
		return
	}
	usage, err := s.fs.GetDiskUsage(s.opts.Dir)
	if err != nil {
		return // unknown: a full disk then shows as a failed write
	}
	level, reserve := int32(spaceEnough), uint64(s.opts.ReserveBytes)
	switch {
	case usage.AvailBytes < reserve/4:
		level = spaceCritical
	case usage.AvailBytes < reserve:
		level = spaceLow
	}
	if before := w.level.Swap(level); before == spaceEnough && level != spaceEnough {
		s.opts.Logger.Error("little space is left; writes are refused until there is more",
			"dir", s.opts.Dir, "available", usage.AvailBytes, "reserve", reserve)
	} else if before != spaceEnough && level == spaceEnough {
		s.opts.Logger.Info("there is space again; writes are accepted", "dir", s.opts.Dir)
	}
}

// wrote counts bytes on their way to the disk.
func (w *spaceWatch) wrote(s *Store, n int) {
	if w.written.Add(int64(n)) >= spaceCheckBytes {
		w.check(s)
	}
}

// allows tells whether a transaction of ops may be written.
func (w *spaceWatch) allows(ops []storage.Op) bool {
	level := w.level.Load()
	if level == spaceEnough || len(ops) == 0 {
		return true
	}
	if level == spaceCritical {
		return false
	}
	for i := range ops {
		if !ops[i].Delete {
			return false
		}
	}
	return true
}
