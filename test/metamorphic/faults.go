package metamorphic

import (
	"context"
	"slices"

	"github.com/keelson-dev/keelson/internal/storage"
)

// Faults returns functions that put a fault in front of a correct store, by a description of the fault.
func Faults() map[string]func(storage.Store) storage.Store {
	return map[string]func(storage.Store) storage.Store{
		"reads of an old revision are of the present": func(s storage.Store) storage.Store { return &presentStore{s} },
		"a watch drops an event": func(s storage.Store) storage.Store {
			return &droppingStore{Store: s}
		},
		"a deletion of nothing takes a revision": func(s storage.Store) storage.Store { return &countingStore{s} },
		"a condition is overlooked now and then": func(s storage.Store) storage.Store {
			return &carelessStore{Store: s}
		},
		"an event has nothing of the state before": func(s storage.Store) storage.Store {
			return &droppingStore{Store: s, prev: true}
		},
	}
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
	prev bool // removes the previous state from events instead of whole events
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
		events := slices.Clone(b.Events) // because other readers share the slice
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
