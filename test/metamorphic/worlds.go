package metamorphic

import (
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/storage"
	"github.com/keelson-dev/keelson/storage/embedded"
)

// embeddedWorld is the embedded engine on a disk, in memory or on a file system.
func embeddedWorld(name string, c cache.Options, adjust func(t *testing.T, o *embedded.Options)) World {
	open := func(t *testing.T, o embedded.Options) storage.Store {
		o.Logger = slog.New(slog.DiscardHandler)
		o.HistoryWindow = -1 // nothing is compacted but by the test
		s, err := embedded.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	var o embedded.Options // of the world's one store
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

// NoObjects leaves the objects of every resource in the store.
var NoObjects = cache.Memory{SmallObjects: -1, UnreadBytes: -1, LoadAfter: math.Inf(1)}

// Restless loads a resource when it is read and drops it when it is written.
var Restless = cache.Memory{SmallObjects: -1, UnreadBytes: -1, HalfLife: time.Millisecond}

// Memory is the embedded engine in memory.
func Memory() World {
	w := embeddedWorld("memory", cache.Options{}, inMemory)
	w.Reopen = nil // it would be empty
	return w
}
