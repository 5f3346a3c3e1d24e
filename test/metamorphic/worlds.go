package metamorphic

import (
	"context"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// embeddedWorld is the embedded engine on a disk, in memory or on a file system.
func embeddedWorld(name string, c cache.Options, adjust func(t *testing.T, o *embedded.Options)) World {
	open := func(t *testing.T, o embedded.Options) storage.Store {
		o.Logger = slog.New(slog.DiscardHandler)
		if o.HistoryWindow == 0 {
			o.HistoryWindow = -1 // only the test compacts
		}
		s, err := embedded.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	var o embedded.Options // of the only store in this world
	return World{
		Name: name, Cache: c,
		Open: func(t *testing.T) storage.Store {
			o = embedded.Options{}
			adjust(t, &o)
			return open(t, o)
		},
		Reopen: func(t *testing.T, s storage.Store) storage.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, o)
		},
	}
}

func onDisk(t *testing.T, o *embedded.Options) { o.Dir = t.TempDir() }

func tiny(_ *testing.T, o *embedded.Options) {
	o.Dir, o.FS = "data", vfs.NewMem()
	o.RingBytes, o.CacheBytes, o.MemTableBytes = 1, 1, 64<<10
	o.ProgressInterval = time.Millisecond
}

func inMemory(_ *testing.T, o *embedded.Options) { o.InMemory = true }

// keeping is a world that keeps everything for readers of the past after it was compacted.
func keeping(name string, c cache.Options, adjust func(t *testing.T, o *embedded.Options)) World {
	return embeddedWorld(name, c, func(t *testing.T, o *embedded.Options) {
		adjust(t, o)
		o.HistoryWindow, o.CompactInterval = time.Millisecond, time.Hour // only the test compacts
		o.Retention = storage.Retention{Rules: []storage.RetentionRule{{Keep: 24 * time.Hour}}, Bytes: -1}
	})
}

// twin is a world that is never compacted.
func twin() World {
	w := embeddedWorld("twin that keeps everything", cache.Options{}, inMemory)
	open := w.Open
	w.Open = func(t *testing.T) storage.Store { return uncompacted{open(t).(*embedded.Store)} }
	w.Reopen = nil
	return w
}

type uncompacted struct{ *embedded.Store }

func (uncompacted) Compact(context.Context, int64) error { return nil }

// NoObjects is a cache that leaves the objects of every resource in the store.
var NoObjects = cache.Memory{SmallObjects: -1, UnreadBytes: -1, LoadAfter: math.Inf(1)}

// Restless is a cache that loads a resource at each read and drops it at each write.
var Restless = cache.Memory{SmallObjects: -1, UnreadBytes: -1, HalfLife: time.Millisecond}

// Memory returns a world with the embedded engine in memory.
func Memory() World {
	w := embeddedWorld("memory", cache.Options{}, inMemory)
	w.Reopen = nil // a store in memory would be empty
	return w
}
