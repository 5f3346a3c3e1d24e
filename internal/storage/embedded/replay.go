package embedded

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/changelog"
)

// Replay applies transactions to the store in o.Dir, which no process uses. The store has them as they were made: with their
// revisions, times, authors and deadlines. The revision of each must be above that of the one before and that of the store. A
// transaction that deletes a key that is not there cannot follow this store: Replay fails then. It returns the revision of the store.
// The store is durable when Replay returns nil. After an error the directory cannot be used.
func Replay(ctx context.Context, o Options, transactions iter.Seq2[changelog.Transaction, error]) (revision int64, err error) {
	f, err := OpenFollower(o)
	if err != nil {
		return 0, err
	}
	err = f.Apply(ctx, transactions)
	return f.Revision(), errors.Join(err, f.Close())
}

// Follower is a store that follows another one: it gets the changes of that store, with their revisions, and makes none of its own.
// It is not for concurrent use.
type Follower struct {
	s *Store
	r *replayer
}

// OpenFollower opens the store in o.Dir, which no process uses. The caller calls Close.
func OpenFollower(o Options) (*Follower, error) {
	s := &Store{opts: o.withDefaults(), lifetime: newLifetime()}
	if err := s.openDB(func(p *pebble.Options) {
		// There is no log: what a crash takes away is applied again. The store then has all changes up to an earlier revision.
		p.ErrorIfNotExists, p.DisableWAL = true, true
	}); err != nil {
		return nil, err
	}
	revision, _, _, err := s.db.position()
	if err != nil {
		return nil, errors.Join(err, s.closeDB())
	}
	return &Follower{s, &replayer{db: s.db, planner: &planner{
		lastRevision: revision, scheduled: func(int64) {}, view: s.db.newestVersions, recent: newRecentVersions(s.opts.RingBytes),
		batch: func() *pebble.Batch { return s.db.NewBatch() },
	}, group: &groupBuilder{}}}, nil
}

// Revision returns the revision of the last transaction that was applied.
func (f *Follower) Revision() int64 { return f.r.planner.lastRevision }

// Apply applies transactions as Replay does. What it has applied is durable after Close. After an error the store must not be used.
func (f *Follower) Apply(ctx context.Context, transactions iter.Seq2[changelog.Transaction, error]) (err error) {
	for t, next := range transactions {
		if err = errors.Join(next, ctx.Err()); err != nil {
			break
		}
		if err = f.r.apply(&t); err != nil {
			break
		}
	}
	return errors.Join(err, f.r.flush())
}

// Close makes what was applied durable and closes the store.
func (f *Follower) Close() error { return errors.Join(f.s.db.Flush(), f.s.closeDB()) }

// replayer writes transactions that were planned before.
type replayer struct {
	db      *database
	planner *planner
	group   *groupBuilder // the transactions that are not written yet
	ops     []storage.Op
}

// apply adds a transaction to the group.
func (r *replayer) apply(t *changelog.Transaction) error {
	p := r.planner
	if t.Revision <= p.lastRevision {
		return fmt.Errorf("embedded: revision %d cannot follow %d", t.Revision, p.lastRevision)
	}
	r.ops = r.ops[:0]
	for i := range t.Operations {
		op := &t.Operations[i]
		if err := validateKey(op.Key); err != nil {
			return err
		}
		r.ops = append(r.ops, storage.Op{Key: op.Key, Value: op.Value, Delete: op.Deleted})
	}
	p.lastRevision = t.Revision
	r.group.wallMS = 0
	if !t.Time.IsZero() {
		r.group.wallMS = t.Time.UnixMilli()
	}
	changes, _, err := p.effectiveChanges(r.group, r.ops)
	if err != nil {
		return err
	}
	if len(changes) < len(r.ops) {
		return fmt.Errorf("embedded: revision %d deletes a key that is not there: changes before it are missing", t.Revision)
	}
	for i := range changes {
		changes[i].deadline = t.Operations[i].Deadline
		p.writeChange(r.group, &changes[i])
	}
	p.writeLog(r.group, changes, t.By)
	clear(changes)
	if r.group.batch.Len() < importBatch {
		return nil
	}
	return r.flush()
}

// flush writes the group.
func (r *replayer) flush() (err error) {
	if v := r.group.view; v != nil {
		err = v.close()
	}
	if b := r.group.batch; b != nil {
		err = errors.Join(err, b.Commit(pebble.NoSync), b.Close())
	}
	r.group = &groupBuilder{}
	r.planner.recent.trim()
	return err
}
