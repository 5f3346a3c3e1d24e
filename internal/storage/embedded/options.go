package embedded

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage"
)

// Options configure a store. The zero value of every field but Dir selects a default.
type Options struct {
	// Dir is the data directory. It is created if it does not exist. It may be empty if InMemory is set.
	Dir string
	// InMemory keeps all data in memory. It is lost at Close.
	InMemory bool
	// FS is the file system. nil means that of the operating system, or one in memory if InMemory is set.
	FS vfs.FS

	// HistoryWindow is the time for which an overwritten or deleted version can still be read and watched. Older
	// versions are compacted in the background. The time is measured in uptime: the time during which processes
	// have the store open. While less than ReserveBytes are free, the window is ten seconds at most. 0 means five
	// minutes; a negative value keeps all versions until Compact is called.
	HistoryWindow time.Duration
	// Retention keeps versions longer than HistoryWindow for readers of the past (storage.History). It has no
	// effect if HistoryWindow is negative.
	Retention storage.Retention
	// Hold makes Store.Hold keep changes longer than HistoryWindow.
	Hold bool
	// CompactInterval is the time between two compactions in the background. 0 means a tenth of HistoryWindow, at most 30
	// seconds.
	CompactInterval time.Duration
	// SweepInterval is the time between two searches for expired keys. 0 means one second.
	SweepInterval time.Duration
	// ProgressInterval is the time between two batches that only tell watchers without matching changes the
	// current revision. They are sent only if the revision has changed. 0 means one second.
	ProgressInterval time.Duration

	// MinRevision is the lowest current revision after Open. If the store is below it, the revision is raised to it and
	// all older revisions are compacted, so that clients never see a lower revision than before.
	MinRevision int64

	// MaxTxnBytes is the largest size of the keys and values of one transaction. 0 means 8 MiB.
	MaxTxnBytes int
	// ReserveBytes is the free disk space that is kept. Below it, puts fail with ErrNoSpace. Transactions that only delete
	// are accepted down to a quarter of it. 0 means DefaultReserveBytes; a negative value means no reserve. There is also no reserve if
	// the file system cannot tell its free space.
	ReserveBytes int64
	// RingBytes limits the memory of the recent changes, from which watchers that are not far behind are served.
	// It also limits the memory of the newest versions of recently written or read keys. Most of these share their
	// values with the recent changes. 0 means 4 MiB.
	RingBytes int
	// CacheBytes is the size of Pebble's block cache while two memtables of MemTableBytes exist, as is usual under
	// load. If there are fewer, the cache may also use their memory. 0 means 8 MiB.
	CacheBytes int64
	// MemTableBytes is the size at which a memtable is flushed. There can be four memtables. Their size starts at 256 KiB
	// and doubles under load up to this. 0 means 8 MiB.
	MemTableBytes int

	// Clock returns the wall-clock time. nil means time.Now.
	Clock func() time.Time
	// Monotonic returns the time that has passed since some fixed moment, independent of changes of the wall clock. nil
	// means the difference of two results of Clock, which for time.Now is measured by the monotonic clock.
	Monotonic func() time.Duration
	// Logger receives messages for the operator. nil means slog.Default().
	Logger *slog.Logger
	// Confirm is called when changes are durable, before readers see them and before Commit returns. The last of these changes has the
	// revision. While Confirm runs, Changes returns them only if ChangesRequest.Through is set to that revision. If Confirm fails, Commit
	// returns ErrFailed and the store can no longer be used, but the changes stay in it. ctx ends when the store is closed. nil: nothing
	// is called.
	Confirm func(ctx context.Context, revision int64) error
	// OnGroup is called with the number of transactions of each group that became durable, and the time from
	// planning the group until it was durable. It must not call the store and must not block. It may be nil.
	OnGroup func(transactions int, took time.Duration)
	// OnFailure is called once when the store has failed and must be closed (see storage.ErrFailed). It must not call the
	// store and must not block.
	OnFailure func(error)

	// Image, unless it is nil, is the state with which a new store begins. A store in memory needs the image of a store in
	// memory.
	Image *Image

	// temporary is true if the files are removed at Close.
	temporary bool
	// following is true for the store of a Follower. It has no log of its own: what a crash takes away is applied again.
	following bool
	// unlogged is true if the files cannot survive the process, so that a log of the writes would be of no use.
	unlogged bool
}

// DefaultReserveBytes is the default of Options.ReserveBytes.
const DefaultReserveBytes = 64 << 20

var (
	// ErrLocked is the error of Open when another process, or another Store of this process, uses the data directory.
	ErrLocked = errors.New("the data directory is locked")
	// ErrDamaged is the error of Open when the store cannot be opened because files are damaged or missing.
	ErrDamaged = errors.New("its files are damaged or incomplete")
	// ErrNewerFormat is the error of Open when a later version of the program wrote the data.
	ErrNewerFormat = errors.New("the data directory has a newer format")
)

// logged reports whether writes go to a log, and are synced there.
func (o *Options) logged() bool { return !o.unlogged && !o.following }

// withDefaults returns o with a value in every field.
func (o Options) withDefaults() Options {
	if o.Image != nil {
		o.Image.options(&o)
	}
	if o.FS == nil {
		o.FS = vfs.Default
		if o.InMemory {
			o.FS, o.unlogged = vfs.NewMem(), true
		}
	}
	if o.Dir == "" && o.InMemory {
		o.Dir = "memory"
	}
	setDefault(&o.HistoryWindow, 5*time.Minute)
	setDefault(&o.CompactInterval, max(min(o.HistoryWindow/10, 30*time.Second), time.Millisecond))
	setDefault(&o.SweepInterval, time.Second)
	setDefault(&o.ProgressInterval, time.Second)
	setDefault(&o.MaxTxnBytes, 8<<20)
	setDefault(&o.ReserveBytes, DefaultReserveBytes)
	setDefault(&o.RingBytes, 4<<20)
	setDefault(&o.CacheBytes, 8<<20)
	setDefault(&o.MemTableBytes, 8<<20)
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Monotonic == nil {
		clock, since := o.Clock, o.Clock()
		o.Monotonic = func() time.Duration { return clock().Sub(since) }
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// setDefault sets a field to value if it is zero.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// pebbleOptions returns the options of the Pebble database.
func (o *Options) pebbleOptions(logger pebble.Logger, lock *pebble.Lock) *pebble.Options {
	p := &pebble.Options{
		FS:                 checkBlocks(o),
		Lock:               lock,
		Comparer:           comparer,
		FormatMajorVersion: pebble.FormatNewest,
		// Pebble takes the memory of the memtables from the size of the cache. Without this addition, the filters
		// of the tables would be read from the disk again for each group of transactions.
		CacheSize:                   o.CacheBytes + 2*int64(o.MemTableBytes),
		MemTableSize:                uint64(o.MemTableBytes),
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                256,
		// A merge of level 0 rewrites most of the next level, because new keys are spread over the whole range:
		// names are generated, and log records sort before all versions. So six layers of new tables are merged at
		// a time (Pebble counts each layer twice). A read checks the filter of each layer.
		L0CompactionThreshold: 12,
		// Merges may have to wait for disk space, and Pebble would block writes for that time. mergeScheduler.waitForMerges blocks
		// writes only while merges can proceed.
		L0StopWritesThreshold: 1 << 20,
		LBaseMaxBytes:         256 << 20,
		FlushSplitBytes:       32 << 20, // larger than a memtable: narrower tables would merge in smaller parts
		DisableWAL:            !o.logged(),
		Logger:                logger,

		BlockPropertyCollectors: []func() pebble.BlockPropertyCollector{collectRevisions},
	}
	// Reads start no merges: reads of the past are rare, and reads should not cause writes to the disk.
	p.Experimental.ReadSamplingMultiplier = -1
	// The tables of each level are twice as large as those of the level above: 8 or 16 MiB for most of the data. Each open
	// table takes a place among MaxOpenFiles.
	p.TargetFileSizes[0] = 4 << 20
	for i := range p.Levels {
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		p.Levels[i].BlockSize = 8 << 10
		p.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.FastestCompression }
	}
	// Almost all data is in the last two levels. There the versions of a key are in the same blocks. Large blocks
	// need a fifth of the space of small blocks, and less processor time to write. Example: each version of a pod
	// of 5.6 KB whose status changes takes 0.3 KB, and 1.5 KB with blocks of 8 KiB. A read of one key that is not
	// in a cache takes 14 us instead of 7 us.
	for i := len(p.Levels) - 2; i < len(p.Levels); i++ {
		p.Levels[i].BlockSize = 64 << 10
	}
	// The tables of level 0 are soon merged, so compressing them would be a waste.
	p.Levels[0].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	return p
}
