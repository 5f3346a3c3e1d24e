package embedded

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/storage"
)

// spaceWatch knows how much of the reserve of free space is left. It is looked up
// once a second and whenever much was written since.
type spaceWatch struct {
	level   atomic.Int32
	written atomic.Int64 // bytes since the last check

	checking sync.Mutex  // held by whoever makes or removes the ballast
	ballast  atomic.Bool // whether the ballast is there
}

const (
	spaceEnough   = iota
	spaceLow      // below the reserve: only deletions
	spaceCritical // below a quarter of it: nothing
)

// lowSpaceWindow is how long history is kept while space is low, if the window is longer:
// a client that is not cut off has seen what happened before, and a disk that is full of
// history has to come back without the window passing first.
const lowSpaceWindow = 10 * time.Second

// spaceCheckBytes is how much may be written between two checks. What is written
// to the log is written again by a flush and by compactions.
const spaceCheckBytes = 4 << 20

// check looks the free space up.
func (w *spaceWatch) check(s *Store) {
	w.written.Store(0)
	if s.opts.ReserveBytes < 0 {
		return
	}
	w.checking.Lock()
	defer w.checking.Unlock()
	available, free, err := w.available(&s.opts)
	if err != nil {
		return // unknown: a full disk then shows as a failed write
	}
	reserve := uint64(s.opts.ReserveBytes)
	level := int32(spaceEnough)
	switch {
	case available < reserve/4:
		level = spaceCritical
		w.drop(&s.opts)
	case available < reserve, s.gate.isStarved():
		level = spaceLow
	default:
		w.stow(&s.opts)
	}
	if before := w.level.Swap(level); before == spaceEnough && level != spaceEnough {
		s.opts.Logger.Error("little space is left; writes are refused until there is more",
			"dir", s.opts.Dir, "available", free, "reserve", reserve)
	} else if before != spaceEnough && level == spaceEnough {
		s.opts.Logger.Info("there is space again; writes are accepted", "dir", s.opts.Dir)
	}
}

// available returns how many bytes are available, and how many the file system has free.
// The difference is what the ballast gave back, which is not for writes of clients.
func (w *spaceWatch) available(o *Options) (available, free uint64, err error) {
	usage, err := o.FS.GetDiskUsage(o.Dir)
	if err != nil {
		return 0, 0, err
	}
	available = usage.AvailBytes
	if !w.ballast.Load() {
		available -= min(available, uint64(o.ballastBytes()))
	}
	return available, usage.AvailBytes, nil
}

// ballastName is a file that only takes space. It is given up when the disk is
// nearly full, so that the engine can write what it has taken on, and start again on
// a disk that others have filled.
const ballastName = "ballast"

// ballastBytes is the size of the ballast.
func (o *Options) ballastBytes() int64 {
	const most = 16 << 20
	return max(0, min(o.ReserveBytes/4, most))
}

// stow makes the ballast. It is of no consequence if that fails: not all file
// systems can set space aside.
func (w *spaceWatch) stow(o *Options) {
	if w.ballast.Swap(true) { // tried again only when it was dropped
		return
	}
	f, err := o.FS.Create(o.FS.PathJoin(o.Dir, ballastName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return
	}
	_ = f.Preallocate(0, o.ballastBytes())
	_ = f.Close()
}

// drop gives the ballast up.
func (w *spaceWatch) drop(o *Options) {
	w.ballast.Store(false)
	_ = o.FS.Remove(o.FS.PathJoin(o.Dir, ballastName)) // it may not be there
}

// makeRoom looks for the ballast of earlier, and gives it up if the disk is so full
// that the database may not be able to open. It fails if that is not enough: the
// database would try to write for ever.
func (w *spaceWatch) makeRoom(o *Options) error {
	_, err := o.FS.Stat(o.FS.PathJoin(o.Dir, ballastName))
	w.ballast.Store(err == nil)
	usage, err := o.FS.GetDiskUsage(o.Dir)
	if err != nil || o.ReserveBytes < 0 || usage.AvailBytes >= uint64(o.ReserveBytes)/4 {
		return nil
	}
	w.drop(o)
	need := spaceToOpen(o)
	if usage, err = o.FS.GetDiskUsage(o.Dir); err == nil && usage.AvailBytes < need {
		return fmt.Errorf(
			"cannot open data directory %s: the disk is full: %d bytes are available, %d are needed", o.Dir, usage.AvailBytes,
			need,
		)
	}
	return nil
}

// spaceToOpen is how many bytes the database may write before it is open: what is
// in its logs goes into tables.
func spaceToOpen(o *Options) uint64 {
	const atLeast = 1 << 20
	need := uint64(atLeast)
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return need
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".log") {
			continue
		}
		if info, err := o.FS.Stat(o.FS.PathJoin(o.Dir, name)); err == nil {
			need += uint64(info.Size())
		}
	}
	return need
}

// wrote counts bytes on their way to the disk.
func (w *spaceWatch) wrote(s *Store, n int) {
	if w.written.Add(int64(n)) >= spaceCheckBytes {
		w.check(s)
		s.keepPace()
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
