package metamorphic

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/storage"
	"github.com/keelson-dev/keelson/storage/embedded"
	"github.com/keelson-dev/keelson/storage/etcd"
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

// worlds are those of every test, and etcd's where KEELSON_METAMORPHIC_ETCD has the
// URLs of a cluster, separated by commas: its keys get a prefix of their own, and
// what is compacted is compacted for everybody.
func worlds(t *testing.T) []World {
	memory := embeddedWorld("memory", cache.Options{}, inMemory)
	memory.Reopen = nil // it would be empty
	dropping := embeddedWorld("memory, cache dropped at once", cache.Options{IdleDrop: 2 * time.Millisecond}, inMemory)
	dropping.Reopen = nil
	list := []World{
		embeddedWorld("disk", cache.Options{}, onDisk),
		memory,
		embeddedWorld("tiny ring and tables, tiny cache", cache.Options{WindowBytes: 1, FormBudget: 1}, tiny),
		dropping,
	}
	if endpoints := os.Getenv("KEELSON_METAMORPHIC_ETCD"); endpoints != "" {
		list = append(list, World{Name: "etcd", Open: func(t *testing.T) storage.Store {
			s, err := etcd.Open(context.Background(), etcd.Options{
				Endpoints: strings.Split(endpoints, ","), Prefix: fmt.Sprintf("/metamorphic-%d", time.Now().UnixNano()),
				Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}})
	}
	return list
}

func TestStores(t *testing.T) {
	Stores(t, Seed(t), Steps(3000), worlds(t)...)
}

func TestAPI(t *testing.T) {
	API(t, Seed(t), Steps(800), worlds(t)...)
}
