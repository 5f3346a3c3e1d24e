package embedded

import (
	"errors"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options say where and how to open a store. The zero value of each but Dir is a
// sensible default.
type Options struct {
	// Dir is the data directory; it is created if it is missing. With InMemory it
	// may be empty.
	Dir string
	// InMemory keeps everything in memory; nothing survives Close.
	InMemory bool
	// FS is the file system; nil is the operating system's (or memory, with
	// InMemory).
	FS vfs.FS

	// HistoryWindow is how long an overwritten or deleted version can still be
	// read and watched; older ones are compacted in the background. It is measured
	// in the time that processes have the store open. While less than ReserveBytes
	// are free, it is ten seconds at most. 0 is five minutes; negative keeps
	// everything until Compact is called.
	HistoryWindow time.Duration
	// CompactInterval is how often the background compacts, and how finely it
	// measures the window. 0 is a tenth of HistoryWindow, at most 30 seconds.
	CompactInterval time.Duration
	// SweepInterval is how often expired keys are looked for. 0 is one second.
	SweepInterval time.Duration
	// ProgressInterval is how often watchers for which nothing happened are told
	// the current revision, if it moved. 0 is one second.
	ProgressInterval time.Duration

	// MinRevision makes the current revision at least this at Open. What lies
	// below it is compacted: no client sees time go back.
	MinRevision int64

	// MaxTxnBytes bounds the keys and values of one transaction. 0 is 8 MiB.
	MaxTxnBytes int
	// ReserveBytes of free disk space are kept: below, puts fail with ErrNoSpace;
	// transactions that only delete go on down to a quarter of it. 0 is 64 MiB,
	// negative is none. A file system that cannot tell its space has no reserve.
	ReserveBytes int64
	// RingBytes bounds the memory for recent changes, from which watchers that are
	// not far behind are served. 0 is 4 MiB.
	RingBytes int
	// CacheBytes is the size of the block cache. 0 is 8 MiB.
	CacheBytes int64
	// MemTableBytes is how large a table of recent writes grows before it is
	// flushed; there can be four. It starts at 256 KiB and doubles under load. 0
	// is 8 MiB.
	MemTableBytes int

	// Clock tells the time; nil is time.Now.
	Clock func() time.Time
	// Monotonic tells how much time has really passed since some moment, whatever Clock
	// is set to. nil takes the difference of two readings of Clock, which of time.Now is
	// that of the monotonic clock.
	Monotonic func() time.Duration
	// Logger receives what an operator should know; nil is slog.Default().
	Logger *slog.Logger
	// OnFailure is told, once, that the store failed and must be closed (see
	// storage.ErrFailed). It must not call the store and not block.
	OnFailure func(error)
}

var (
	// ErrLocked says that another process, or another Store of this one, uses the
	// data directory.
	ErrLocked = errors.New("the data directory is locked")
	// ErrNewerFormat says that a later version of the program wrote the data.
	ErrNewerFormat = errors.New("the data directory has a newer format")
)

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.Default
		if o.InMemory {
			o.FS = vfs.NewMem()
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
	setDefault(&o.ReserveBytes, 64<<20)
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

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// pebbleOptions are the options of the database below.
func (o *Options) pebbleOptions(logger pebble.Logger, lock *pebble.Lock) *pebble.Options {
	p := &pebble.Options{
		FS:                          o.FS,
		Lock:                        lock,
		Comparer:                    comparer,
		FormatMajorVersion:          pebble.FormatNewest,
		CacheSize:                   o.CacheBytes,
		MemTableSize:                uint64(o.MemTableBytes),
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                256,
		L0CompactionThreshold:       2,
		// Merges may have to wait for space, and the database would stop writes for as
		// long; Store.keepPace does so only while merges go on.
		L0StopWritesThreshold: 1 << 20,
		LBaseMaxBytes:         64 << 20,
		Logger:                logger,
	}
	for i := range p.Levels {
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		p.Levels[i].BlockSize = 8 << 10
	}
	return p
}
