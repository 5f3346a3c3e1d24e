package copies

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"filippo.io/age"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/changelog"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// Follower keeps a store up to date with a copy that another server writes. It is not for concurrent use.
type Follower struct {
	Bucket     bucket.Bucket
	Identities []age.Identity // the private keys of an encrypted copy
	// Store says where the store is. Work is a directory for images while they are read. What is in both directories is removed at first.
	Store embedded.Options
	Work  string
	// BeforeClose, unless it is nil, is called before the store is closed: when the store is made anew, when this server takes over, and by
	// Close. What reads the store (Reads) has to end then.
	BeforeClose func()

	store    *embedded.Follower
	restored Restored
	epoch    int64 // in which the last change that was applied was written
	position int64 // all changes up to this revision are in the store
	newest   int64 // the newest epoch of the copy
}

// Position is how far a Follower has come.
type Position struct {
	Revision int64
	// Time is when the last change was made that was applied.
	Time time.Time
}

// Position returns how far the Follower has come.
func (f *Follower) Position() Position { return Position{f.position, f.restored.Time} }

// Reads returns the store for readers, nil while there is none. It is valid until BeforeClose is called.
func (f *Follower) Reads() storage.Store {
	if f.store == nil {
		return nil
	}
	return f.store.Reads()
}

// Files returns the files of the server that the copy has.
func (f *Follower) Files() map[string][]byte { return f.restored.Files }

// Step applies what is new in the copy. After an error of the bucket the next Step goes on.
func (f *Follower) Step(ctx context.Context) error {
	x, err := ReadIndex(ctx, f.Bucket)
	if err != nil {
		return err
	}
	return f.Follow(ctx, x)
}

// Follow is Step with a listing of the bucket.
func (f *Follower) Follow(ctx context.Context, x *Index) error {
	l := x.current()
	if l == nil {
		return ErrEmpty
	}
	f.newest = x.Newest()
	if f.store == nil || !l.covers(f.epoch, f.position) || !l.reaches(f.position) {
		if err := f.restart(ctx, x); err != nil {
			return err
		}
	}
	for s, ok := l.next(f.position); ok; s, ok = l.next(f.position) {
		if err := f.apply(ctx, s); err != nil {
			return err
		}
		f.epoch, f.position = s.Epoch, s.Until
	}
	return nil
}

// apply applies a segment.
func (f *Follower) apply(ctx context.Context, s Segment) error {
	p := Plan{Image: Image{Revision: f.position}, Segments: []Segment{s}}
	var unread error
	err := f.store.Apply(ctx, func(yield func(changelog.Transaction, error) bool) {
		for t, err := range p.transactions(ctx, f.Bucket, opener(f.Identities), &f.restored) {
			if err != nil {
				unread = err
				return
			}
			if !yield(t, nil) {
				return
			}
		}
	})
	if err != nil { // of the store, which cannot be used any more
		return errors.Join(err, f.Close())
	}
	if unread != nil && f.store.Revision() > f.position {
		f.epoch, f.position = s.Epoch, f.store.Revision()
	}
	return unread
}

// reaches reports whether a reader at a revision misses nothing: it is at the end, or there is a segment with which it goes on.
func (l *Line) reaches(revision int64) bool {
	_, ok := l.next(revision)
	return ok || !l.goesOn(revision)
}

// restart makes the store anew.
func (f *Follower) restart(ctx context.Context, x *Index) error {
	p, err := x.Plan(Target{})
	if err != nil {
		return err
	}
	if err := errors.Join(f.Close(), os.RemoveAll(f.Store.Dir), os.RemoveAll(f.Work), os.MkdirAll(f.Work, 0o700)); err != nil {
		return err
	}
	restored, err := p.Restore(ctx, f.Bucket, f.Store, f.Work, f.Identities)
	if err != nil {
		return err
	}
	store, err := embedded.OpenFollower(f.Store)
	if err != nil {
		return err
	}
	f.store, f.restored = store, restored
	f.epoch, f.position = p.Image.Epoch, max(p.Image.Revision, restored.Revision)
	if n := len(p.Segments); n > 0 {
		f.epoch, f.position = p.Segments[n-1].Epoch, p.End
	}
	return nil
}

// CatchUp applies all that is in the copy. No other process writes to it.
func (f *Follower) CatchUp(ctx context.Context) error {
	// A listing is not a snapshot of the bucket: two of them have to agree on the end.
	for before := int64(-1); before != f.position; {
		before = f.position
		if err := f.Step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Handover is where a server goes on that takes over from another one.
type Handover struct {
	// Epoch is the newest epoch of the other servers, Revision the last revision that is in the copy.
	Epoch, Revision int64
	// Next is the revision of the store after the takeover. It is above all revisions that clients can have seen from the other server. It is
	// 0 if the store is not made out of the copy, because no other server has written to the copy since this store did.
	Next int64
	// Lock is held.
	Lock *Lock
}

// takeoverGap is how many revisions are left out at a takeover. The other server may have given them to changes that are lost, and
// clients may have seen them. It is more than a server can make while its copy is late for an hour.
const takeoverGap = 1_000_000_000

// TakeOver takes the lock and applies what is left in the copy. It fails with *HeldError while another server may hold the lock. When it
// returns nil, the store is closed.
func (f *Follower) TakeOver(ctx context.Context, lock *Lock) (*Handover, error) {
	if lock.Epoch() == 0 || !lock.Valid() {
		if err := lock.Acquire(ctx, f.newest); err != nil {
			return nil, err
		}
	}
	if err := f.CatchUp(ctx); err != nil {
		return nil, fmt.Errorf("the lock of the copy was taken, but not all changes could be read: %w", err)
	}
	if !lock.Valid() { // then another server may have written meanwhile
		return nil, errLockEnded
	}
	h := &Handover{Epoch: f.newest, Revision: f.position, Next: f.position + takeoverGap, Lock: lock}
	return h, f.Close()
}

// Close closes the store.
func (f *Follower) Close() error {
	if f.store == nil {
		return nil
	}
	if f.BeforeClose != nil {
		f.BeforeClose()
	}
	err := f.store.Close()
	f.store = nil
	return err
}
