package embedded

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage"
)

// diskSpace tracks the free disk space and how much of the reserve is left. It measures the free space once a
// second, and after each Options.spaceCheckBytes of writes.
type diskSpace struct {
	level   atomic.Int32 // spaceEnough, spaceLow or spaceCritical
	written atomic.Int64 // bytes since the last update
	free    atomic.Int64 // bytes that the store may use, -1 if that is not known
	refused atomic.Int64 // writes that were refused

	mu      sync.Mutex    // held by update, which creates and removes the ballast; guards warned
	ballast atomic.Bool   // whether the ballast exists
	warned  time.Duration // when low space was last logged, by Options.Monotonic
}

// warnInterval is the time between two log messages about low space.
const warnInterval = time.Minute

const (
	spaceEnough   = iota
	spaceLow      // below the reserve: only deletions are accepted
	spaceCritical // below a quarter of the reserve: no writes are accepted
)

// lowSpaceWindow limits the history window while space is low. It is long enough for connected watchers, because
// these have read older changes already. Without this limit, a disk that is full of history would stay full until
// the history window has passed.
const lowSpaceWindow = 10 * time.Second

// spaceCheckBytes returns how many bytes may be written to the log between two updates. A flush writes them a
// second time before the log is removed. So between two updates the log and its flush take at most an eighth of
// the reserve. Merges may take half of the reserve.
func (o *Options) spaceCheckBytes() int64 {
	const most = 4 << 20
	if o.ReserveBytes < 0 {
		return most
	}
	return min(o.ReserveBytes/16, most)
}

// update looks up the free space, sets the level, and creates or removes the ballast.
func (d *diskSpace) update(s *Store) {
	d.written.Store(0)
	d.mu.Lock()
	defer d.mu.Unlock()
	available, free, err := d.available(&s.opts)
	if err != nil {
		d.free.Store(-1)
		return // the free space is unknown; if the disk is full, a write fails
	}
	d.free.Store(int64(available))
	if s.opts.ReserveBytes < 0 {
		return
	}
	reserve := uint64(s.opts.ReserveBytes)
	level := int32(spaceEnough)
	switch {
	case available < reserve/4:
		level = spaceCritical
		d.removeBallast(&s.opts)
	case available < reserve, s.merges.lacksSpace():
		level = spaceLow
	default:
		d.createBallast(&s.opts)
	}
	before, now := d.level.Swap(level), s.opts.Monotonic()
	switch {
	case level != spaceEnough && (before == spaceEnough || now-d.warned >= warnInterval):
		d.warned = now
		s.opts.Logger.Error("little space is left; writes are refused until there is more",
			"dir", s.opts.Dir, "available", free, "reserve", reserve, "refused", d.refused.Load())
	case level == spaceEnough && before != spaceEnough:
		s.opts.Logger.Info("there is space again; writes are accepted", "dir", s.opts.Dir)
	}
}

// isLow reports whether less than the reserve is free, or merges lack space.
func (d *diskSpace) isLow() bool { return d.level.Load() != spaceEnough }

// nearlyLow reports whether less than twice the reserve is free.
func (d *diskSpace) nearlyLow(o *Options) bool {
	free := d.free.Load()
	return d.isLow() || o.ReserveBytes > 0 && free >= 0 && free < 2*o.ReserveBytes
}

// available returns the free bytes that the store may use, and the free bytes of the file system. While the ballast
// does not exist, its size is not available: that space is not for writes of clients.
func (d *diskSpace) available(o *Options) (available, free uint64, err error) {
	usage, err := o.FS.GetDiskUsage(o.Dir)
	if err != nil {
		return 0, 0, err
	}
	available = usage.AvailBytes
	if !d.ballast.Load() {
		available -= min(available, uint64(o.ballastBytes()))
	}
	return available, usage.AvailBytes, nil
}

// ballastName is a file that only occupies space. It is removed when the disk is nearly full, so that the database can
// complete accepted writes, and can be opened again when other programs have filled the disk.
const ballastName = "ballast"

// ballastBytes returns the size of the ballast.
func (o *Options) ballastBytes() int64 {
	const most = 16 << 20
	return max(0, min(o.ReserveBytes/4, most))
}

// createBallast creates the ballast. Errors are ignored, because not all file systems can reserve space.
func (d *diskSpace) createBallast(o *Options) {
	if d.ballast.Swap(true) { // it exists already, or an attempt was made
		return
	}
	f, err := o.FS.Create(o.FS.PathJoin(o.Dir, ballastName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return
	}
	_ = f.Preallocate(0, o.ballastBytes())
	_ = f.Close()
}

// removeBallast removes the ballast.
func (d *diskSpace) removeBallast(o *Options) {
	d.ballast.Store(false)
	_ = o.FS.Remove(o.FS.PathJoin(o.Dir, ballastName)) // the file may not exist
}

// makeRoom prepares the opening of the database. It finds out whether the ballast exists, and removes it if there
// is so little space that the opening may fail. It returns an error if the space is still too small, because the
// database would otherwise repeat its failing writes forever.
func (d *diskSpace) makeRoom(o *Options) error {
	_, err := o.FS.Stat(o.FS.PathJoin(o.Dir, ballastName))
	d.ballast.Store(err == nil)
	usage, err := o.FS.GetDiskUsage(o.Dir)
	if err != nil || o.ReserveBytes < 0 || usage.AvailBytes >= uint64(o.ReserveBytes)/4 {
		return nil
	}
	d.removeBallast(o)
	need := spaceToOpen(o)
	if usage, err = o.FS.GetDiskUsage(o.Dir); err == nil && usage.AvailBytes < need {
		return fmt.Errorf(
			"cannot open data directory %s: the disk is full: %d bytes are available, %d are needed", o.Dir, usage.AvailBytes,
			need,
		)
	}
	return nil
}

// spaceToOpen returns how many bytes the database may write while it is opened: the contents of its logs are written to
// tables.
func spaceToOpen(o *Options) uint64 {
	const atLeast = 1 << 20
	return atLeast + uint64(logFileBytes(o))
}

// logFileBytes returns the size of the log files, 0 if the directory cannot be read.
func logFileBytes(o *Options) int64 {
	names, _ := o.FS.List(o.Dir)
	total := int64(0)
	for _, name := range names {
		if !strings.HasSuffix(name, ".log") {
			continue
		}
		if info, err := o.FS.Stat(o.FS.PathJoin(o.Dir, name)); err == nil {
			total += info.Size()
		}
	}
	return total
}

// addWritten must be called before n bytes are written to the log. Each time Options.spaceCheckBytes have been
// written, it updates the free space, and waits if merges are too far behind.
func (d *diskSpace) addWritten(s *Store, n int) {
	if d.written.Add(int64(n)) >= s.opts.spaceCheckBytes() {
		d.update(s)
		s.merges.waitForMerges(s.db)
	}
}

// allows reports whether a transaction with ops may be written at the current level.
func (d *diskSpace) allows(ops []storage.Op) bool {
	level := d.level.Load()
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
