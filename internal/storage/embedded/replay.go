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
// It is not for concurrent use; what Reads returns is.
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
	revision, compacted, _, err := s.db.position()
	if err != nil {
		return nil, errors.Join(err, s.closeDB())
	}
	s.compactor.compacted.Store(compacted)
	s.openReads(revision)
	return &Follower{s, &replayer{db: s.db, hub: s.hub, planner: &planner{
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

// Close makes what was applied durable and closes the store. Watchers end.
func (f *Follower) Close() error {
	var err error
	f.s.endReads(func() { err = errors.Join(f.s.db.Flush(), f.s.closeDB()) })
	return err
}

// Reads returns the store for readers and watchers. They see transactions when Apply returns, or earlier, and never a part of one. Writes
// fail with storage.ErrReadOnly. Its Close does nothing: it ends with the Follower.
func (f *Follower) Reads() storage.Store { return followed{f.s} }

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

// replayer writes transactions that were planned before.
type replayer struct {
	db      *database
	hub     *hub
	planner *planner
	group   *groupBuilder // the transactions that are not written yet
	records []*record     // of these transactions
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
	events := make([]storage.Event, len(changes))
	for i := range changes {
		changes[i].deadline = t.Operations[i].Deadline
		events[i] = p.writeChange(r.group, &changes[i])
	}
	r.records = append(r.records, &record{t.Revision, events})
	p.writeLog(r.group, changes, t.By)
	clear(changes)
	if r.group.batch.Len() < importBatch {
		return nil
	}
	return r.flush()
}

// flush writes the group and shows it to readers.
func (r *replayer) flush() (err error) {
	if v := r.group.view; v != nil {
		err = v.close()
	}
	if b := r.group.batch; b != nil {
		if e := b.Commit(pebble.NoSync); e == nil {
			r.hub.publish(r.records)
			r.hub.sendProgress()
		} else {
			err = errors.Join(err, e)
		}
		err = errors.Join(err, b.Close())
	}
	r.group, r.records = &groupBuilder{}, nil
	r.planner.recent.trim()
	return err
}
