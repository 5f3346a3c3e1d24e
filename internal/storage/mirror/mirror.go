// Package mirror keeps the data of an etcd cluster on the disk of each server too, with its past: who has made each change, and when. So
// reads of the past do not need etcd, which can forget old versions soon, and a copy elsewhere can be made of it (package copies).
//
// mirror.go has the Mirror, which follows the cluster; past.go the reads of the past; leases.go the ends of leases.
package mirror

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/changelog"
	"github.com/keelson-dev/keelson/internal/storage/copies"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// Options say what is mirrored, and where.
type Options struct {
	Source *etcd.Store
	// Store says where the mirror is. The directory is made anew if it does not have the data of the cluster. Its name with ".making"
	// appended is used while it is made.
	Store embedded.Options
	// Another, unless it is nil, returns the mirror of another server as a snapshot with its past, out of which this one is made if the
	// cluster does not have all changes since it was written. A nil reader means that no server has one.
	Another func(ctx context.Context) (io.ReadCloser, error)
	// Bucket, unless it is nil, has a copy of the data, out of which the mirror is made if the cluster does not have all changes since the
	// mirror was written, and if the copy can be read without a key.
	Bucket bucket.Bucket
	// Now is the clock for changes of which nobody has recorded the time.
	Now func() time.Time
	Log *slog.Logger
}

const (
	// shortestPause and longestPause are the times between two tries to follow the cluster.
	shortestPause, longestPause = 100 * time.Millisecond, 30 * time.Second
	// privateFile is the mode of files with data.
	privateFile = 0o600
	// patience is how long a reader waits for the mirror.
	patience = 10 * time.Second
)

// Mirror is a store that has what the cluster has, a little later. Its methods are those of a copies.Store, and read what the mirror has at
// this time; History waits for what the cluster has.
type Mirror struct {
	o      Options
	cancel context.CancelFunc
	ended  chan struct{} // closed when run has ended

	mu       sync.Mutex         // guards the fields below
	follower *embedded.Follower // nil while the mirror is made or cannot be used
	changes  etcd.Following     // of the follower
	position int64              // the follower has all changes of the cluster up to this revision
	err      error              // why there is no follower
	moved    chan struct{}      // closed and replaced when one of them changes
}

var _ copies.Shared = (*Mirror)(nil)

// Open starts a Mirror, which follows the cluster from now on. It does not wait for it. The caller calls Close before it closes the source.
func Open(o Options) *Mirror {
	ctx, cancel := context.WithCancel(context.Background())
	m := &Mirror{o: o, cancel: cancel, ended: make(chan struct{}), moved: make(chan struct{}), err: errMaking}
	go m.run(ctx)
	return m
}

// errMaking is the reason why there is no follower at first.
var errMaking = errors.New("it is being made")

// Failing returns why the mirror cannot be kept, nil if it is kept or made for the first time.
func (m *Mirror) Failing() error {
	if _, err := m.store(); err != nil && !errors.Is(err, errMaking) && !errors.Is(err, storage.ErrClosed) {
		return err
	}
	return nil
}

// Close ends the Mirror. Readers end with storage.ErrClosed.
func (m *Mirror) Close() error {
	m.cancel()
	<-m.ended
	return nil
}

// run follows the cluster until ctx ends.
func (m *Mirror) run(ctx context.Context) {
	defer close(m.ended)
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		began := time.Now()
		err := m.follow(ctx)
		if ctx.Err() != nil {
			m.set(nil, etcd.Following{}, 0, storage.ErrClosed)
			return
		}
		m.set(nil, etcd.Following{}, 0, err)
		m.o.Log.Error("this server cannot keep the past of the data; will try again", "directory", m.o.Store.Dir, "error", err)
		if time.Since(began) > longestPause {
			pause = shortestPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// set sets the state.
func (m *Mirror) set(f *embedded.Follower, c etcd.Following, position int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.follower, m.changes, m.position, m.err = f, c, position, err
	close(m.moved)
	m.moved = make(chan struct{})
}

// follow makes the mirror, if necessary, and applies the changes of the cluster until ctx ends or something fails.
func (m *Mirror) follow(ctx context.Context) (err error) {
	ends := newLeases(m.o.Source)
	f, err := m.open(ctx, ends)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	defer func() { m.set(nil, etcd.Following{}, 0, errMaking) }() // nobody reads from a store that is closed
	changes, err := m.o.Source.Follow(ctx, f.Revision()+1)
	if err != nil {
		return err
	}
	defer changes.Close()
	m.set(f, changes, f.Revision(), nil)
	var last time.Time
	for {
		list, through, err := changes.Next(ctx)
		if err != nil {
			return err
		}
		if last, err = m.apply(ctx, f, ends, list, last); err != nil {
			return err
		}
		m.set(f, changes, through, nil)
	}
}

// apply adds changes to the mirror. A change of which nobody has recorded the time gets the present time, but not an earlier one than the
// change before it (last). apply returns the time of the last change.
func (m *Mirror) apply(
	ctx context.Context, f *embedded.Follower, ends *leases, list []storage.Change, last time.Time,
) (time.Time, error) {
	now := m.o.Now()
	for i := range list {
		c := &list[i]
		if c.Lease != 0 && c.Deadline == 0 {
			var err error
			if c.Deadline, err = ends.deadline(ctx, c.Lease); err != nil {
				return last, err
			}
		}
		if c.Time.IsZero() {
			if c.Time = now; now.Before(last) { // the clocks of two servers differ, or somebody has set one back
				c.Time = last
			}
		}
		last = c.Time
	}
	return last, f.Apply(ctx, func(yield func(changelog.Transaction, error) bool) {
		for t := range slices.Values(changelog.Transactions(list)) {
			if !yield(t, nil) {
				return
			}
		}
	})
}

// open opens the mirror, if the cluster still has all changes since it was written. Otherwise it makes it out of that of another
// server or of the copy, if that holds for them, or else with the keys of the cluster. If the disk or the bucket fails, it is not
// known which of them is right, and open returns an error: a mirror that is made anew has no past.
func (m *Mirror) open(ctx context.Context, ends *leases) (*embedded.Follower, error) {
	making := m.o.Store
	making.Dir += ".making"
	if err := os.RemoveAll(making.Dir); err != nil { // of a process that was killed
		return nil, err
	}
	if _, err := os.Stat(m.o.Store.Dir); err == nil {
		f, err := m.goOn(ctx, m.o.Store, "the mirror on the disk of this server")
		if f != nil || err != nil {
			return f, err
		}
	}
	made, err := m.fromAnother(ctx, making)
	if err == nil && !made {
		made, err = m.fromCopy(ctx, making)
	}
	if err == nil && !made {
		err = errors.Join(os.RemoveAll(making.Dir), m.makeAnew(ctx, making, ends))
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.RemoveAll(m.o.Store.Dir), os.Rename(making.Dir, m.o.Store.Dir)); err != nil {
		return nil, err
	}
	return embedded.OpenFollower(m.o.Store)
}

// goOn opens a store. It returns nil if the store is damaged or lacks changes that the cluster does not have, and the log says so.
func (m *Mirror) goOn(ctx context.Context, o embedded.Options, name string) (*embedded.Follower, error) {
	f, err := embedded.OpenFollower(o)
	if errors.Is(err, embedded.ErrDamaged) {
		m.o.Log.Error(name+" cannot be used; it is made anew", "directory", o.Dir, "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	goesOn, err := m.goesOn(ctx, f)
	if goesOn && err == nil {
		return f, nil
	}
	if err == nil {
		m.o.Log.Warn("the cluster does not have all changes any more that "+name+" lacks; it is made anew", "directory", o.Dir)
	}
	return nil, errors.Join(err, f.Close())
}

// fromAnother makes a store out of the mirror of another server. It reports whether it did. A transfer that ends early is an error.
func (m *Mirror) fromAnother(ctx context.Context, o embedded.Options) (made bool, err error) {
	if m.o.Another == nil {
		return false, nil
	}
	in, err := m.o.Another(ctx)
	if in == nil || err != nil {
		return false, err
	}
	path := o.Dir + ".snapshot"
	err = errors.Join(receive(path, in), in.Close())
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	if err != nil {
		return false, err
	}
	f, err := backup.OpenFile(path, nil)
	if err != nil {
		return false, err
	}
	_, err = backup.Restore(ctx, f, o, backup.RestoreOptions{KeepRevisions: true, KeepDeadlines: true, Now: m.o.Now()})
	if err = errors.Join(err, f.Close()); err != nil {
		return false, fmt.Errorf("the past of another server: %w", err)
	}
	store, err := m.goOn(ctx, o, "the past of another server")
	if store == nil {
		return false, err
	}
	m.o.Log.Info("the past of the data was taken from another server")
	return true, store.Close()
}

// receive writes a file.
func receive(path string, in io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, privateFile)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, in)
	return errors.Join(err, f.Close())
}

// fromCopy makes a store out of the copy. It reports whether it did: it does not if there is no copy, or if the copy is damaged, incomplete
// or encrypted. A bucket or a disk that fails says nothing about the copy, so the result is an error then.
func (m *Mirror) fromCopy(ctx context.Context, o embedded.Options) (bool, error) {
	if m.o.Bucket == nil {
		return false, nil
	}
	work, b := o.Dir+".images", &noted{Bucket: m.o.Bucket}
	copied := &copies.Follower{Bucket: b, Store: o, Work: work}
	err := copied.CatchUp(ctx)
	err = errors.Join(err, copied.Close(), os.RemoveAll(work))
	switch {
	case b.failed.Load(), errors.As(err, new(syscall.Errno)):
		return false, err
	case errors.Is(err, copies.ErrEmpty):
		return false, nil
	case err != nil:
		m.o.Log.Warn("the past of the data cannot be taken out of the copy (--backup-to)", "error", err)
		return false, ctx.Err()
	}
	f, err := m.goOn(ctx, o, "the copy of the data")
	if f == nil {
		return false, err
	}
	return true, f.Close()
}

// noted is a bucket that notes whether reading from it has failed.
type noted struct {
	bucket.Bucket
	failed atomic.Bool
}

// List implements bucket.Bucket.
func (b *noted) List(ctx context.Context) ([]bucket.Object, error) {
	list, err := b.Bucket.List(ctx)
	return list, b.note(err)
}

// Get implements bucket.Bucket.
func (b *noted) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := b.Bucket.Get(ctx, name)
	if err != nil {
		return nil, b.note(err)
	}
	return notedReader{r, b}, nil
}

func (b *noted) note(err error) error {
	if err != nil && err != io.EOF {
		b.failed.Store(true)
	}
	return err
}

// notedReader reads an object of a noted bucket.
type notedReader struct {
	io.ReadCloser
	of *noted
}

// Read implements io.Reader.
func (r notedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	return n, r.of.note(err)
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
func (m *Mirror) makeAnew(ctx context.Context, o embedded.Options, ends *leases) error {
	revision, err := m.o.Source.Revision(ctx)
	if err != nil {
		return err
	}
	return embedded.Import(o, revision, func(yield func(embedded.Record, error) bool) {
		for e, err := range m.o.Source.Snapshot(ctx, revision) {
			r := embedded.Record{Entry: e.Entry}
			if err == nil {
				r.Deadline, err = ends.deadline(ctx, e.Lease)
			}
			if !yield(r, err) {
				return
			}
		}
	}, nil)
}

// await waits until the mirror has all changes up to a revision, at most for the time patience. It returns the mirror.
func (m *Mirror) await(ctx context.Context, revision int64) (*embedded.Follower, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		m.mu.Lock()
		f, changes, position, moved, err := m.follower, m.changes, m.position, m.moved, m.err
		m.mu.Unlock()
		switch {
		case f != nil && position >= revision:
			return f, nil
		case f != nil:
			changes.RequestProgress()
		case errors.Is(err, storage.ErrClosed):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, &storage.NoPastError{Cause: cmp.Or(err, ctx.Err())}
		case <-moved:
		}
	}
}

// Await implements copies.Shared.
func (m *Mirror) Await(ctx context.Context) error {
	_, err := m.current(ctx)
	return err
}

// current returns the mirror when it has all changes that the cluster has.
func (m *Mirror) current(ctx context.Context) (*embedded.Follower, error) {
	revision, err := m.o.Source.Revision(ctx)
	if err != nil {
		return nil, err
	}
	return m.await(ctx, revision)
}

// store returns the mirror as it is, or why there is none.
func (m *Mirror) store() (*embedded.Store, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.follower == nil {
		return nil, &storage.NoPastError{Cause: m.err}
	}
	return m.follower.Source(), nil
}

// Revision implements copies.Store.
func (m *Mirror) Revision(ctx context.Context) (int64, error) {
	s, err := m.store()
	if err != nil {
		return 0, err
	}
	return s.Revision(ctx)
}

// Stats implements copies.Store. All figures are 0 while there is no mirror.
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
