package embedded

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/changelog"
)

// Replay applies transactions to the store in o.Dir, which no process uses. The store has them as they were made: with their
// revisions, times, authors and deadlines. The revision of each must be above that of the one before and that of the store. A
// transaction that deletes a key that is not there cannot follow this store: Replay fails then. It returns the revision of the store.
// The store is durable when Replay returns nil. After an error the directory cannot be used.
func Replay(ctx context.Context, o Options, transactions iter.Seq2[changelog.Transaction, error]) (revision int64, err error) {
	o.HistoryWindow = -1 // everything stays
	f, err := OpenFollower(o)
	if err != nil {
		return 0, err
	}
	err = f.Apply(ctx, transactions)
	return f.Revision(), errors.Join(err, f.Close())
}

// Follower is a store that follows another one: it gets the changes of that store, with their revisions, and makes none of its own.
// What is older than Options.HistoryWindow is compacted as in every store. It is not for concurrent use; what Reads returns is.
type Follower struct{ s *Store }

// OpenFollower opens the store in o.Dir, which no process uses. The caller calls Close. After a crash the store has all changes up to an
// earlier revision.
func OpenFollower(o Options) (*Follower, error) {
	o.following, o.MinRevision = true, 0
	s, err := open(o)
	if err != nil {
		return nil, err
	}
	return &Follower{s}, nil
}

// Revision returns the revision of the last transaction that was applied.
func (f *Follower) Revision() int64 { return f.s.hub.durable.Load() }

// Apply applies transactions as Replay does. Readers see them when Apply returns, or earlier, and never a part of one. What it has applied
// is durable after Close. After an error the store must not be used.
func (f *Follower) Apply(ctx context.Context, transactions iter.Seq2[changelog.Transaction, error]) (err error) {
	var group []*request
	size := 0
	for t, next := range transactions {
		if err = errors.Join(next, ctx.Err()); err != nil {
			break
		}
		r := newRequest(storage.Txn{By: t.By})
		r.given = &given{revision: t.Revision}
		if !t.Time.IsZero() {
			r.given.wallMS = t.Time.UnixMilli()
		}
		for i := range t.Operations {
			op := &t.Operations[i]
			if err = validateKey(op.Key); err != nil {
				return errors.Join(err, f.submit(group))
			}
			r.txn.Ops = append(r.txn.Ops, storage.Op{Key: op.Key, Value: op.Value, Delete: op.Deleted})
			r.given.deadlines = append(r.given.deadlines, op.Deadline)
		}
		r.size = txnSize(r.txn)
		size += r.size
		if group = append(group, r); len(group) < groupRequests && size < groupBytes {
			continue
		}
		if err = f.submit(group); err != nil {
			return err
		}
		group, size = group[:0], 0
	}
	return errors.Join(err, f.submit(group))
}

// submit applies requests and waits for the result.
func (f *Follower) submit(group []*request) (err error) {
	if len(group) == 0 {
		return nil
	}
	if f.s.space.isLow() {
		return storage.ErrNoSpace
	}
	if err := f.s.pipeline.submit(group...); err != nil {
		return err
	}
	for _, r := range group {
		if <-r.done; err == nil {
			err = r.err
		}
	}
	f.s.hub.sendProgress()
	return err
}

// Close makes what was applied durable and closes the store. Watchers end.
func (f *Follower) Close() error { return f.s.Close() }

// Reads returns the store for readers and watchers. Writes fail with storage.ErrReadOnly. Its Close does nothing: it ends with the
// Follower.
func (f *Follower) Reads() storage.Store { return followed{f.s} }

// Source returns the store for what copies its changes elsewhere. It must not be written to.
func (f *Follower) Source() *Store { return f.s }

// followed is Follower.Reads.
type followed struct{ s *Store }

var _ storage.Store = followed{}

func (f followed) Get(ctx context.Context, key string, revision int64) (storage.Entry, int64, error) {
	return f.s.Get(ctx, key, revision)
}

func (f followed) Range(ctx context.Context, r storage.RangeRequest) (storage.RangeResult, error) {
	return f.s.Range(ctx, r)
}

func (f followed) Watch(ctx context.Context, prefix string, from int64) (storage.Watcher, error) {
	return f.s.Watch(ctx, prefix, from)
}

func (f followed) Revision(ctx context.Context) (int64, error) { return f.s.Revision(ctx) }

func (f followed) Stats() storage.Stats { return f.s.Stats() }

func (followed) Commit(context.Context, storage.Txn) (int64, error) { return 0, storage.ErrReadOnly }

func (followed) Compact(context.Context, int64) error { return storage.ErrReadOnly }

func (followed) Close() error { return nil }

// given is what a transaction has got from the store that made it.
type given struct {
	revision, wallMS int64
	deadlines        []int64 // of the operations; 0 means never
}

// planGiven plans a transaction of another store.
func (p *planner) planGiven(w *groupBuilder, r *request) {
	if p.refused == nil {
		p.refused = p.applyGiven(w, r)
	}
	if p.refused != nil {
		r.answer(0, p.refused)
	}
}

// applyGiven returns an error if the transaction cannot follow the ones before.
func (p *planner) applyGiven(w *groupBuilder, r *request) error {
	g := r.given
	if g.revision <= p.lastRevision {
		return fmt.Errorf("embedded: revision %d cannot follow %d", g.revision, p.lastRevision)
	}
	changes, _, err := p.effectiveChanges(w, r.txn.Ops)
	if err != nil {
		return err
	}
	if len(changes) < len(r.txn.Ops) {
		return fmt.Errorf("embedded: revision %d deletes a key that is not there: changes before it are missing", g.revision)
	}
	for i := range changes {
		changes[i].deadline = g.deadlines[i]
	}
	p.lastRevision, w.wallMS = g.revision, g.wallMS
	p.write(w, r, changes)
	return nil
}
