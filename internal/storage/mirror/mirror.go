// Package mirror keeps a store on the disk with the data of an etcd cluster, and of each change when it was made, which etcd does not
// keep. Out of it package copies keeps a copy elsewhere. Of the servers on a cluster only the one that writes the copy has a Mirror that is
// open.
package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/changelog"
	"github.com/keelson-dev/keelson/internal/storage/copies"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// root is the beginning of the keys that are copied.
const root = etcd.DefaultPrefix + "/"

// Options say what is mirrored, and where.
type Options struct {
	Source *etcd.Store
	// Bucket has the copy, out of which the store is made if it can be read without a key.
	Bucket bucket.Bucket
	// Store says where the store is. Work is a directory for images while they are read. What is in both directories is removed.
	Store embedded.Options
	Work  string
	Log   *slog.Logger
}

// Mirror is the store. It implements copies.Shared.
type Mirror struct {
	o Options

	mu   sync.Mutex // guards term
	term *term      // nil while the store is not open
}

// term is the time from Open to Close.
type term struct {
	follower *embedded.Follower
	watcher  storage.Watcher
	leases   *leases
	cancel   context.CancelFunc
	ended    chan struct{} // closed when err is set: changes are not applied any more
	err      error
}

var _ copies.Shared = (*Mirror)(nil)

// New returns a Mirror. The caller calls Close.
func New(o Options) *Mirror { return &Mirror{o: o} }

// Open implements copies.Shared.
func (m *Mirror) Open(ctx context.Context) error {
	if _, err := m.store(); err == nil {
		return nil
	}
	if err := m.Close(); err != nil {
		return err
	}
	leases := newLeases(m.o.Source)
	f, err := m.make(ctx, leases)
	if err != nil {
		return err
	}
	w, err := m.o.Source.Watch(ctx, root, f.Revision()+1)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	t := &term{follower: f, watcher: w, leases: leases, ended: make(chan struct{})}
	background, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	go t.run(background)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.term = t
	return nil
}

// make makes the store: out of the copy, if the cluster still has all changes since, otherwise with the keys of the cluster.
func (m *Mirror) make(ctx context.Context, leases *leases) (*embedded.Follower, error) {
	copied := &copies.Follower{Bucket: m.o.Bucket, Store: m.o.Store, Work: m.o.Work}
	err := copied.CatchUp(ctx)
	err = errors.Join(err, copied.Close(), os.RemoveAll(m.o.Work))
	switch {
	case err == nil:
		f, err := embedded.OpenFollower(m.o.Store)
		if err != nil {
			return nil, err
		}
		goesOn, err := m.goesOn(ctx, f)
		if goesOn && err == nil {
			return f, nil
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		m.o.Log.Warn("the cluster does not have all changes since the end of the copy any more; a new image is written")
	case errors.Is(err, changelog.ErrDamaged):
		m.o.Log.Error("the copy of the data is damaged; a new image is written", "error", err)
	case !errors.Is(err, copies.ErrEmpty) && !errors.Is(err, backup.ErrEncrypted):
		return nil, err
	}
	return m.makeAnew(ctx, leases)
}

// goesOn reports whether the cluster has the last change of the store, and all changes since.
func (m *Mirror) goesOn(ctx context.Context, f *embedded.Follower) (bool, error) {
	end := f.Revision()
	current, err := m.o.Source.Revision(ctx)
	if err != nil || current < end {
		return false, err
	}
	last, err := lastChanges(ctx, f.Source(), end)
	if err != nil {
		return false, err
	}
	for _, c := range last {
		e, _, err := m.o.Source.Get(ctx, c.Entry.Key, end)
		var compacted *storage.CompactedError
		switch {
		case errors.As(err, &compacted):
			return false, nil
		case err != nil:
			return false, err
		case c.Deleted && e.ModRevision != 0,
			!c.Deleted && (e.ModRevision != c.Entry.ModRevision || !bytes.Equal(e.Value, c.Entry.Value)):
			return false, nil
		}
	}
	return true, nil
}

// lastChanges returns the changes of the last revision of a store, or the key that was written last if the store does not know the changes,
// because it begins there.
func lastChanges(ctx context.Context, s *embedded.Store, end int64) ([]storage.Change, error) {
	r, err := s.Changes(ctx, storage.ChangesRequest{After: end - 1})
	if err != nil || len(r.Changes) > 0 {
		return r.Changes, err
	}
	e, err := s.Export(ctx)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	var last storage.Change
	for r, err := range e.Records(ctx) {
		if err != nil {
			return nil, err
		}
		if r.ModRevision > last.Entry.ModRevision {
			last.Entry = r.Entry
		}
	}
	if last.Entry.ModRevision == 0 {
		return nil, nil
	}
	return []storage.Change{last}, nil
}

// makeAnew makes the store with the keys of the cluster as they are.
func (m *Mirror) makeAnew(ctx context.Context, leases *leases) (*embedded.Follower, error) {
	if err := os.RemoveAll(m.o.Store.Dir); err != nil {
		return nil, err
	}
	revision, err := m.o.Source.Revision(ctx)
	if err != nil {
		return nil, err
	}
	err = embedded.Import(m.o.Store, revision, func(yield func(embedded.Record, error) bool) {
		for e, err := range m.o.Source.Snapshot(ctx, revision) {
			r := embedded.Record{Entry: e.Entry}
			if err == nil {
				r.Deadline, err = leases.deadline(ctx, e.Lease)
			}
			if !yield(r, err) {
				return
			}
		}
	}, nil)
	if err != nil {
		return nil, err
	}
	return embedded.OpenFollower(m.o.Store)
}

// run applies the changes of the cluster until ctx ends.
func (t *term) run(ctx context.Context) {
	defer close(t.ended)
	var last time.Time
	for {
		b, err := t.watcher.Next(ctx)
		if err == nil {
			now := time.Now()
			if now.Before(last) { // somebody has set the clock back
				now = last
			}
			last = now
			err = t.apply(ctx, b.Events, now)
		}
		if err != nil {
			t.err = fmt.Errorf("the changes of etcd cannot be followed: %w", err)
			return
		}
	}
}

// apply applies changes that were made at a time.
func (t *term) apply(ctx context.Context, events []storage.Event, at time.Time) error {
	changes := make([]storage.Change, len(events))
	for i := range events {
		deadline, err := t.leases.deadline(ctx, events[i].Lease)
		if err != nil {
			return err
		}
		changes[i] = storage.Change{Event: events[i], Time: at, Deadline: deadline}
	}
	return t.follower.Apply(ctx, func(yield func(changelog.Transaction, error) bool) {
		for t := range slices.Values(changelog.Transactions(changes)) {
			if !yield(t, nil) {
				return
			}
		}
	})
}

var errClosed = errors.New("this server does not follow the cluster")

// store returns the store, or why it does not keep up.
func (m *Mirror) store() (*embedded.Store, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.term == nil {
		return nil, errClosed
	}
	select {
	case <-m.term.ended:
		return nil, m.term.err
	default:
		return m.term.follower.Source(), nil
	}
}

// Close implements copies.Shared.
func (m *Mirror) Close() error {
	m.mu.Lock()
	t := m.term
	m.term = nil
	m.mu.Unlock()
	if t == nil {
		return nil
	}
	t.cancel()
	<-t.ended
	return errors.Join(t.watcher.Close(), t.follower.Close(), os.RemoveAll(m.o.Store.Dir))
}

// Revision implements copies.Store.
func (m *Mirror) Revision(ctx context.Context) (int64, error) {
	s, err := m.store()
	if err != nil {
		return 0, err
	}
	return s.Revision(ctx)
}

// Stats implements copies.Store. All figures are 0 while the Mirror is closed.
func (m *Mirror) Stats() storage.Stats {
	s, err := m.store()
	if err != nil {
		return storage.Stats{}
	}
	return s.Stats()
}

// Floor implements copies.Store.
func (m *Mirror) Floor(scope storage.Scope) int64 {
	s, err := m.store()
	if err != nil {
		return 0
	}
	return s.Floor(scope)
}

// Changes implements copies.Store.
func (m *Mirror) Changes(ctx context.Context, r storage.ChangesRequest) (storage.ChangesResult, error) {
	s, err := m.store()
	if err != nil {
		return storage.ChangesResult{}, err
	}
	return s.Changes(ctx, r)
}

// WrittenAt implements copies.Store.
func (m *Mirror) WrittenAt(ctx context.Context, revision int64) (time.Time, []byte, error) {
	s, err := m.store()
	if err != nil {
		return time.Time{}, nil, err
	}
	return s.WrittenAt(ctx, revision)
}

// Export implements copies.Store.
func (m *Mirror) Export(ctx context.Context) (*embedded.Export, error) {
	s, err := m.store()
	if err != nil {
		return nil, err
	}
	return s.Export(ctx)
}

// Hold implements copies.Store.
func (m *Mirror) Hold(revision, written int64) {
	if s, err := m.store(); err == nil {
		s.Hold(revision, written)
	}
}
