package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server"
	"github.com/keelson-dev/keelson/internal/storage"
)

// nullCommand serves Keelson on a store that does nothing, to measure the cost of everything else.
const nullCommand = "null"

// serveNull serves on a port until the process gets a signal.
func serveNull(port, tokens string) error {
	c := config.InMemory().Complete()
	var err error
	if c.Serving.Port, err = strconv.Atoi(port); err != nil {
		return fmt.Errorf("port %q: %w", port, err)
	}
	c.Authentication.TokenFile, c.Diagnostics.Log = tokens, slog.New(slog.NewTextHandler(os.Stderr, nil))
	o := server.Options{OpenStore: func(context.Context) (storage.Store, error) { return newNullStore(), nil }}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := server.Start(ctx, c, o)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case err = <-s.Failed():
	}
	if e := s.Stop(context.Background()); err == nil {
		err = e
	}
	return err
}

// nullStore keeps the objects in a map. Its transactions end at once, nothing is written to a disk, and there is no
// history except for the changes that watchers follow.
type nullStore struct {
	mu       sync.Mutex // guards the fields below
	revision int64
	entries  map[string]storage.Entry
	events   []storage.Event
	changed  chan struct{} // closed at the next change
	waiting  bool          // whether a watcher waits for changed
	closed   bool
}

// Exclusive implements storage.Exclusive: no other process writes to the map.
func (s *nullStore) Exclusive() bool { return true }

func newNullStore() *nullStore {
	return &nullStore{revision: 1, entries: map[string]storage.Entry{}, changed: make(chan struct{})}
}

// Get implements storage.Store for the latest revision.
func (s *nullStore) Get(_ context.Context, key string, _ int64) (storage.Entry, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[key], s.revision, nil
}

// Range implements storage.Store for the latest revision.
func (s *nullStore) Range(_ context.Context, r storage.RangeRequest) (storage.RangeResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	result := storage.RangeResult{Revision: s.revision}
	for key, e := range s.entries {
		if key >= r.Start && (r.End == "" || key < r.End) {
			result.Entries = append(result.Entries, e)
		}
	}
	result.Count = int64(len(result.Entries))
	slices.SortFunc(result.Entries, func(a, b storage.Entry) int { return strings.Compare(a.Key, b.Key) })
	if r.Limit > 0 && len(result.Entries) > r.Limit {
		result.Entries, result.More = result.Entries[:r.Limit], true
	}
	if r.CountOnly {
		result.Entries = nil
	}
	return result, nil
}

// Commit implements storage.Store.
func (s *nullStore) Commit(_ context.Context, txn storage.Txn) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, storage.ErrClosed
	}
	for _, c := range txn.Conditions {
		if e := s.entries[c.Key]; e.ModRevision != c.ModRevision {
			return 0, &storage.ConflictError{Condition: c, Current: e, Revision: s.revision}
		}
	}
	next := s.revision + 1
	for _, op := range txn.Ops {
		prev := s.entries[op.Key]
		if op.Delete && prev.ModRevision == 0 {
			continue
		}
		event := storage.Event{Prev: prev, Deleted: op.Delete, Entry: storage.Entry{Key: op.Key, ModRevision: next}}
		if op.Delete {
			delete(s.entries, op.Key)
		} else {
			event.Entry.Value, event.Entry.CreateRevision = op.Value, next
			if prev.ModRevision != 0 {
				event.Entry.CreateRevision = prev.CreateRevision
			}
			s.entries[op.Key] = event.Entry
		}
		s.revision = next
		s.events = append(s.events, event)
	}
	s.wake()
	return s.revision, nil
}

// wake wakes the waiting watchers. The caller must hold mu.
func (s *nullStore) wake() {
	if s.waiting {
		close(s.changed)
		s.changed, s.waiting = make(chan struct{}), false
	}
}

// Revision implements storage.Store.
func (s *nullStore) Revision(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, nil
}

// Compact implements storage.Store.
func (s *nullStore) Compact(context.Context, int64) error { return nil }

// Stats implements storage.Store.
func (s *nullStore) Stats() storage.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return storage.Stats{Revision: s.revision}
}

// Close implements storage.Store.
func (s *nullStore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.wake()
	return nil
}

// Watch implements storage.Store.
func (s *nullStore) Watch(_ context.Context, prefix string, from int64) (storage.Watcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &nullWatcher{store: s, prefix: prefix, done: make(chan struct{})}
	if from == 0 {
		from = s.revision + 1
	}
	for w.next < len(s.events) && s.events[w.next].Entry.ModRevision < from {
		w.next++
	}
	return w, nil
}

// nullWatcher implements storage.Watcher.
type nullWatcher struct {
	store  *nullStore
	prefix string
	next   int // the index of the next event
	done   chan struct{}
	once   sync.Once
}

// Next implements storage.Watcher.
func (w *nullWatcher) Next(ctx context.Context) (storage.Batch, error) {
	s := w.store
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return storage.Batch{}, storage.ErrClosed
		}
		fresh, revision, changed := s.events[w.next:], s.revision, s.changed
		w.next = len(s.events)
		s.waiting = s.waiting || len(fresh) == 0
		s.mu.Unlock()
		if len(fresh) > 0 {
			return storage.Batch{Revision: revision, Events: w.matching(fresh)}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return storage.Batch{}, ctx.Err()
		case <-w.done:
			return storage.Batch{}, storage.ErrClosed
		}
	}
}

func (w *nullWatcher) matching(events []storage.Event) []storage.Event {
	if w.prefix == "" {
		return events
	}
	var out []storage.Event
	for _, e := range events {
		if strings.HasPrefix(e.Entry.Key, w.prefix) {
			out = append(out, e)
		}
	}
	return out
}

// Close implements storage.Watcher.
func (w *nullWatcher) Close() error {
	w.once.Do(func() { close(w.done) })
	return nil
}
