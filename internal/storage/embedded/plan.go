package embedded

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/internal/storage"
)

// planner checks the conditions of transactions, assigns revisions and makes events and writes. Only the builder
// goroutine uses it.
type planner struct {
	lastRevision int64 // the last revision that was assigned, durable or not
	durable      func() int64
	now          func() int64 // the store time, in Unix milliseconds
	wall         func() time.Time
	// scheduled is called with each deadline before the deadline is written.
	scheduled func(deadline int64)
	// view opens a reader of the newest versions, including those of all applied groups.
	view func() (versionReader, error)
	// batch returns an empty batch.
	batch func() *pebble.Batch

	recent *recentVersions

	// refused is why a transaction of another store was refused: none can follow then, because it would be missing between them.
	refused error

	// changes and logged are reused for each transaction.
	changes []change
	logged  []byte
}

// versionReader finds the newest version of a key. The value of the version is valid until the next call.
type versionReader interface {
	newest(key string) (version, bool, error)
	close() error
}

// groupBuilder is a group during its planning.
type groupBuilder struct {
	group   *group
	view    versionReader // nil before the first version is read from the database
	batch   *pebble.Batch
	durable int64 // durable revision, read before the first version
	nowMS   int64
	wallMS  int64
}

// plan implements pipelineEnv.plan. commit wraps the batch of the group.
func (p *planner) plan(requests []*request, commit func(*pebble.Batch) batch) *group {
	w := &groupBuilder{
		group:   &group{answers: make([]answer, 0, len(requests)), records: make([]*record, 0, len(requests))},
		durable: p.durable(),
		nowMS:   p.now(),
		wallMS:  p.wall().UnixMilli(),
	}
	p.recent.trim() // the groups before this one are applied
	for _, r := range requests {
		p.planTxn(w, r)
	}
	if w.view != nil {
		_ = w.view.close() // the errors of its reads were returned
	}
	if w.batch != nil {
		w.group.batch = commit(w.batch)
	}
	return w.group
}

// planTxn plans one transaction. On any error the transaction changes nothing.
func (p *planner) planTxn(w *groupBuilder, r *request) {
	if r.given != nil {
		p.planGiven(w, r)
		return
	}
	newestRead, err := p.checkConditions(w, r.txn.Conditions)
	if err != nil {
		p.answerUnchanged(w, r, newestRead, err)
		return
	}
	changes, newest, err := p.effectiveChanges(w, r.txn.Ops)
	if err != nil {
		r.answer(0, err)
		return
	}
	if len(changes) == 0 {
		p.answerUnchanged(w, r, max(newestRead, newest), nil)
		return
	}
	p.lastRevision++
	p.write(w, r, changes)
}

// write adds the changes of a transaction at revision p.lastRevision to the group.
func (p *planner) write(w *groupBuilder, r *request, changes []change) {
	rec := &record{revision: p.lastRevision, events: make([]storage.Event, len(changes))}
	for i := range changes {
		rec.events[i] = p.writeChange(w, &changes[i])
	}
	p.writeLog(w, changes, r.txn.By)
	clear(changes) // release the values: the slice is reused later
	w.group.records = append(w.group.records, rec)
	w.group.answers = append(w.group.answers, answer{request: r, revision: p.lastRevision})
}

// answerUnchanged answers a transaction that changes nothing. newestRead is the highest revision of the versions that
// the transaction has read. If it is durable, the transaction is answered at once, otherwise with its group.
func (p *planner) answerUnchanged(w *groupBuilder, r *request, newestRead int64, err error) {
	revision := p.lastRevision
	if newestRead <= w.durable {
		// The newest versions of the keys in the transaction are durable, so the answer is also right at the
		// durable revision.
		revision = w.durable
	}
	if conflict, ok := err.(*storage.ConflictError); ok {
		conflict.Revision = revision
	}
	if err != nil {
		revision = 0
	}
	if newestRead <= w.durable {
		r.answer(revision, err)
		return
	}
	w.group.answers = append(w.group.answers, answer{request: r, revision: revision, err: err})
}

// lookup returns the newest version of key, including the changes of the group that is being planned. If the key
// does not exist, the result is a tombstone, with revision 0 if the key was never written. The value in the result
// stays valid.
func (p *planner) lookup(w *groupBuilder, key string) (version, error) {
	if v, ok := p.recent.get(key); ok {
		return v, nil
	}
	if w.view == nil {
		view, err := p.view()
		if err != nil {
			return version{}, err
		}
		w.view = view
	}
	v, ok, err := w.view.newest(key)
	if err != nil {
		return version{}, err
	}
	if ok {
		v.value = bytes.Clone(v.value)
	} else {
		v = version{tombstone: true}
	}
	p.recent.put(key, v)
	return v, nil
}

// checkConditions returns a *ConflictError for the first condition that does not hold. newestRead is the highest
// revision of the versions that it has read.
func (p *planner) checkConditions(w *groupBuilder, conditions []storage.Condition) (newestRead int64, err error) {
	for _, c := range conditions {
		v, err := p.lookup(w, c.Key)
		if err != nil {
			return 0, err
		}
		newestRead = max(newestRead, v.revision)
		mod := int64(0)
		if !v.tombstone {
			mod = v.revision
		}
		if mod != c.ModRevision {
			conflict := &storage.ConflictError{Condition: c}
			if mod != 0 {
				conflict.Current = v.entryShared(c.Key)
			}
			return newestRead, conflict
		}
	}
	return newestRead, nil
}

// change is an operation that has an effect.
type change struct {
	op           *storage.Op
	prev         storage.Entry // the previous entry; ModRevision 0 if the key did not exist
	prevSize     int           // encoded size of the previous version
	prevDeadline int64         // deadline of the previous version
	deadline     int64         // deadline of the new version, in milliseconds of the store time; 0 is never
}

// effectiveChanges returns the operations that have an effect: all except deletions of keys that do not exist. The
// result is valid until the next call. newestRead is the highest revision among the newest versions of the keys of
// those deletions.
func (p *planner) effectiveChanges(w *groupBuilder, ops []storage.Op) (out []change, newestRead int64, err error) {
	out = p.changes[:0]
	for i := range ops {
		op := &ops[i]
		v, err := p.lookup(w, op.Key)
		if err != nil {
			return nil, 0, err
		}
		c := change{op: op, deadline: expiryDeadline(w.nowMS, op.TTL)}
		if !v.tombstone {
			c.prev, c.prevSize, c.prevDeadline = v.entryShared(op.Key), v.size(), v.deadline
		} else if op.Delete {
			newestRead = max(newestRead, v.revision)
			continue
		}
		out = append(out, c)
	}
	p.changes = out
	return out, newestRead, nil
}

// entry returns v as an Entry with a copy of the value, which stays valid after the reader is closed.
func (v *version) entry(key string) storage.Entry {
	e := v.entryShared(key)
	e.Value = bytes.Clone(v.value)
	return e
}

// entryShared returns v as an Entry that shares the value with v.
func (v *version) entryShared(key string) storage.Entry {
	return storage.Entry{Key: key, Value: v.value, ModRevision: v.revision, CreateRevision: v.create}
}

// writeChange adds the writes of one change at revision p.lastRevision to the batch and returns its event.
func (p *planner) writeChange(w *groupBuilder, c *change) storage.Event {
	if w.batch == nil {
		w.batch = p.batch()
	}
	op := c.op
	v := version{revision: p.lastRevision, tombstone: op.Delete}
	event := storage.Event{
		Entry:   storage.Entry{Key: op.Key, ModRevision: p.lastRevision},
		Deleted: op.Delete,
		Prev:    c.prev,
	}
	if !op.Delete {
		v.value = op.Value
		v.create = p.lastRevision
		if c.prev.ModRevision != 0 {
			v.create = c.prev.CreateRevision
		}
		v.deadline = c.deadline
		event.Entry.Value, event.Entry.CreateRevision = op.Value, v.create
	}
	d := w.batch.SetDeferred(versionKeySize(op.Key), v.size())
	putVersionKey(d.Key, op.Key, p.lastRevision)
	v.encode(d.Value)
	mustSucceed(d.Finish())
	if c.prevDeadline != 0 {
		mustSucceed(w.batch.Delete(appendExpiryKey(nil, c.prevDeadline, op.Key), nil))
	}
	if v.deadline != 0 {
		p.scheduled(v.deadline)
		mustSucceed(w.batch.Set(appendExpiryKey(nil, v.deadline, op.Key), encodeNumber(p.lastRevision), nil))
	}
	p.recent.put(op.Key, v)
	return event
}

// expiryDeadline returns the time, in milliseconds, at which a key expires that is put at nowMS with a time to
// live of ttl seconds. It returns 0 if the key does not expire. The result is rounded up to a whole second, so
// that no key expires too early.
func expiryDeadline(nowMS, ttl int64) int64 {
	if ttl <= 0 {
		return 0
	}
	if ttl > (math.MaxInt64-nowMS)/1000-2 {
		return math.MaxInt64 / 1000 * 1000
	}
	return (nowMS/1000 + 1 + ttl) * 1000
}

// writeLog adds the log record of revision p.lastRevision to the batch.
func (p *planner) writeLog(w *groupBuilder, changes []change, by []byte) {
	b := appendWritten(p.logged[:0], written{w.wallMS, by})
	for i := range changes {
		c := &changes[i]
		b = appendLogOp(b, logOp{key: c.op.Key, deleted: c.op.Delete, prev: c.prev.ModRevision, prevSize: int64(c.prevSize)})
	}
	p.logged = b
	d := w.batch.SetDeferred(logKeySize, len(b))
	putLogKey(d.Key, p.lastRevision)
	copy(d.Value, b)
	mustSucceed(d.Finish())
}

// mustSucceed panics if err is not nil. It is for calls that fail only if they are used wrongly.
func mustSucceed(err error) {
	if err != nil {
		panic(fmt.Sprintf("embedded: %v", err))
	}
}
