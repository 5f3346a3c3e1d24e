package metamorphic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
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
	if err := Stores(t, Seed(t), Steps(3000, 30_000), worlds(t)...); err != nil {
		t.Error(err)
	}
}

func TestAPI(t *testing.T) {
	if err := API(t, Seed(t), Steps(800, 30_000), worlds(t)...); err != nil {
		t.Error(err)
	}
}

// TestPlantedDifferences shows that a world with a fault is told apart.
func TestPlantedDifferences(t *testing.T) {
	healthy := embeddedWorld("healthy", cache.Options{}, inMemory)
	healthy.Reopen = nil
	for name, fault := range map[string]func(storage.Store) storage.Store{
		"reads of an old revision are of the present": func(s storage.Store) storage.Store { return &presentStore{s} },
		"a watch drops an event":                      func(s storage.Store) storage.Store { return &droppingStore{Store: s} },
		"a deletion of nothing takes a revision":      func(s storage.Store) storage.Store { return &countingStore{s} },
		"a condition is overlooked now and then":      func(s storage.Store) storage.Store { return &carelessStore{Store: s} },
		"an event has nothing of the state before":    func(s storage.Store) storage.Store { return &droppingStore{Store: s, prev: true} },
	} {
		t.Run(name, func(t *testing.T) {
			faulty := healthy
			faulty.Name = "faulty"
			faulty.Open = func(t *testing.T) storage.Store { return fault(healthy.Open(t)) }
			var d *Difference
			if err := Stores(t, 1, 3000, healthy, faulty); !errors.As(err, &d) {
				t.Errorf("stores: %v", err)
			}
		})
	}
	t.Run("API", func(t *testing.T) {
		faulty := healthy
		faulty.Name = "faulty"
		faulty.Open = func(t *testing.T) storage.Store { return &carelessStore{Store: healthy.Open(t)} }
		var d *Difference
		if err := API(t, 1, 3000, healthy, faulty); !errors.As(err, &d) {
			t.Error(err)
		}
	})
}

type presentStore struct{ storage.Store }

func (s *presentStore) Get(ctx context.Context, key string, revision int64) (storage.Entry, int64, error) {
	_, at, err := s.Store.Get(ctx, key, revision)
	if err != nil {
		return storage.Entry{}, 0, err
	}
	e, _, err := s.Store.Get(ctx, key, 0)
	return e, at, err
}

type droppingStore struct {
	storage.Store
	prev bool // drops the state before instead
}

func (s *droppingStore) Watch(ctx context.Context, prefix string, from int64) (storage.Watcher, error) {
	w, err := s.Store.Watch(ctx, prefix, from)
	return &droppingWatcher{w, s.prev}, err
}

type droppingWatcher struct {
	storage.Watcher
	prev bool
}

func (w *droppingWatcher) Next(ctx context.Context) (storage.Batch, error) {
	b, err := w.Watcher.Next(ctx)
	if n := len(b.Events); n > 0 {
		events := slices.Clone(b.Events) // they are shared
		if events[0].Prev = (storage.Entry{}); !w.prev {
			events = events[1:]
		}
		b.Events = events
	}
	return b, err
}

type countingStore struct{ storage.Store }

func (s *countingStore) Commit(ctx context.Context, txn storage.Txn) (int64, error) {
	before := s.Stats().Revision
	r, err := s.Store.Commit(ctx, txn)
	if err == nil && r == before && len(txn.Ops) > 0 {
		return s.Store.Commit(ctx, storage.Txn{Ops: []storage.Op{storage.Put(root+"none", nil)}})
	}
	return r, err
}

type carelessStore struct {
	storage.Store
	n int
}

func (s *carelessStore) Commit(ctx context.Context, txn storage.Txn) (int64, error) {
	if s.n++; s.n%7 == 0 {
		txn.Conditions = nil
	}
	return s.Store.Commit(ctx, txn)
}
