package embedded

import (
	"bytes"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/storage"
)

// planner checks conditions and turns transactions into revisions, events and
// writes. Only the builder goroutine uses it.
type planner struct {
	last    int64 // last revision assigned, durable or not
	durable func() int64
	now     func() int64 // the store time, in Unix milliseconds
	// scheduled is told each deadline before it is written.
	scheduled func(deadline int64)
	// view opens a reader of the newest versions, all applied groups included.
	view func() (versionReader, error)
	// batch makes an empty batch.
	batch func() *pebble.Batch

	overlay map[string]version // what the group being planned changed
}

// versionReader finds the newest version of a key. The version's value is only
// valid until the next call.
type versionReader interface {
	newest(key string) (version, bool, error)
	close() error
}

// planned is a group under construction.
type planned struct {
	group   *group
	view    versionReader
	batch   *pebble.Batch
	durable int64 // as of before anything was looked up
	nowMS   int64
}

// plan implements pipelineEnv.plan; commit makes the batch of a group's writes.
func (p *planner) plan(requests []*request, commit func(*pebble.Batch) batch) *group {
	w := &planned{
		group:   &group{answers: make([]answer, 0, len(requests)), records: make([]*record, 0, len(requests))},
		durable: p.durable(),
		nowMS:   p.now(),
	}
	view, err := p.view()
	if err != nil {
		for _, r := range requests {
			r.answer(0, err)
		}
		return w.group
	}
	w.view = view
	defer view.close()
	clear(p.overlay)
	for _, r := range requests {
		p.one(w, r)
	}
	if w.batch != nil {
		w.group.batch = commit(w.batch)
	}
	return w.group
}

// one plans a single transaction: all of it or, on any error, nothing.
func (p *planner) one(w *planned, r *request) {
	rests, err := p.check(w, r.txn.Conditions)
	if err != nil {
		p.respond(w, r, rests, err)
		return
	}
	changes, newest, err := p.changes(w, r.txn.Ops)
	if err != nil {
		r.answer(0, err)
		return
	}
	if len(changes) == 0 {
		p.respond(w, r, max(rests, newest), nil)
		return
	}
	p.last++
	rec := &record{revision: p.last, events: make([]storage.Event, len(changes))}
	for i := range changes {
		rec.events[i] = p.write(w, &changes[i])
	}
	p.writeLog(w, changes)
	w.group.records = append(w.group.records, rec)
	w.group.answers = append(w.group.answers, answer{request: r, revision: p.last})
}

// respond answers a transaction that changes nothing: at once if what it
// observed (a change at revision rests, at the newest) is durable, otherwise
// with its group.
func (p *planner) respond(w *planned, r *request, rests int64, err error) {
	revision := p.last
	if rests <= w.durable {
		// What is newest and durable is also the state at the durable revision.
		revision = w.durable
	}
	if conflict, ok := err.(*storage.ConflictError); ok {
		conflict.Revision = revision
	}
	if err != nil {
		revision = 0
	}
	if rests <= w.durable {
		r.answer(revision, err)
		return
	}
	w.group.answers = append(w.group.answers, answer{request: r, revision: revision, err: err})
}

// lookup returns the newest version of key, including what this group changed.
func (p *planner) lookup(w *planned, key string) (version, bool, error) {
	if v, ok := p.overlay[key]; ok {
		return v, true, nil
	}
	return w.view.newest(key)
}

// check returns a *ConflictError for the first condition that does not hold, and
// the newest revision that the outcome rests on.
func (p *planner) check(w *planned, conditions []storage.Condition) (rests int64, err error) {
	for _, c := range conditions {
		v, ok, err := p.lookup(w, c.Key)
		if err != nil {
			return 0, err
		}
		mod := int64(0)
		if ok {
			rests = max(rests, v.revision)
			if !v.tombstone {
				mod = v.revision
			}
		}
		if mod != c.ModRevision {
			conflict := &storage.ConflictError{Condition: c}
			if mod != 0 {
				conflict.Current = v.entry(c.Key)
			}
			return rests, conflict
		}
	}
	return rests, nil
}

// change is one effective operation.
type change struct {
	op     *storage.Op
	prev   storage.Entry // ModRevision 0 if there was none
	size   int           // of prev, encoded
	expiry int64         // deadline of prev
}

// changes returns the operations that change something, and the newest revision
// that the others rest on.
func (p *planner) changes(w *planned, ops []storage.Op) (out []change, rests int64, err error) {
	if len(ops) > 0 {
		out = make([]change, 0, len(ops))
	}
	for i := range ops {
		op := &ops[i]
		v, ok, err := p.lookup(w, op.Key)
		if err != nil {
			return nil, 0, err
		}
		c := change{op: op}
		if ok && !v.tombstone {
			c.prev, c.size, c.expiry = v.entry(op.Key), v.size(), v.deadline
		} else if op.Delete {
			rests = max(rests, v.revision)
			continue
		}
		out = append(out, c)
	}
	return out, rests, nil
}

// entry copies v into an Entry that outlives the reader. The overlay's values
// are not shared with a reader, but a copy of those is rare and small.
func (v *version) entry(key string) storage.Entry {
	return storage.Entry{Key: key, Value: bytes.Clone(v.value), ModRevision: v.revision, CreateRevision: v.create}
}

// write adds the writes of one change at revision p.last and returns its event.
func (p *planner) write(w *planned, c *change) storage.Event {
	if w.batch == nil {
		w.batch = p.batch()
	}
	op := c.op
	v := version{revision: p.last, tombstone: op.Delete}
	event := storage.Event{
		Entry:   storage.Entry{Key: op.Key, ModRevision: p.last},
		Deleted: op.Delete,
		Prev:    c.prev,
	}
	if !op.Delete {
		v.value = op.Value
		v.create = p.last
		if c.prev.ModRevision != 0 {
			v.create = c.prev.CreateRevision
		}
		v.deadline = deadline(w.nowMS, op.TTL)
		event.Entry.Value, event.Entry.CreateRevision = op.Value, v.create
	}
	d := w.batch.SetDeferred(versionKeySize(op.Key), v.size())
	putVersionKey(d.Key, op.Key, p.last)
	v.encode(d.Value)
	must(d.Finish())
	if c.expiry != 0 {
		must(w.batch.Delete(appendExpiryKey(nil, c.expiry, op.Key), nil))
	}
	if v.deadline != 0 {
		p.scheduled(v.deadline)
		must(w.batch.Set(appendExpiryKey(nil, v.deadline, op.Key), encodeNumber(p.last), nil))
	}
	p.overlay[op.Key] = v
	return event
}

// deadline is when a key put now expires. It is rounded up to a whole second,
// so that it is never early.
func deadline(nowMS, ttl int64) int64 {
	if ttl <= 0 {
		return 0
	}
	if ttl > (math.MaxInt64-nowMS)/1000-2 {
		return math.MaxInt64 / 1000 * 1000
	}
	return (nowMS/1000 + 1 + ttl) * 1000
}

func (p *planner) writeLog(w *planned, changes []change) {
	n := 0
	for i := range changes {
		n += len(changes[i].op.Key) + 1 + 3*10
	}
	b := make([]byte, 0, n)
	for i := range changes {
		c := &changes[i]
		b = appendLogOp(b, logOp{key: c.op.Key, deleted: c.op.Delete, prev: c.prev.ModRevision, prevSize: int64(c.size)})
	}
	must(w.batch.Set(logKey(p.last), b, nil))
}

// must guards calls that can only fail by misuse.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("embedded: %v", err))
	}
}
