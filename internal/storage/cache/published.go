package cache

import (
	"cmp"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/keelson-dev/keelson/internal/storage/cache/interest"
	"github.com/keelson-dev/keelson/internal/storage/cache/window"
)

// published is the part of a resource that readers and watchers use: its state, the log of the events that led to
// this state, and the cursors that read the log. The state and the log change together.
type published struct {
	encodings *encodingBudget
	budget    *logBudget

	// state is the current state. Readers use it without a lock. It is nil while the resource is unused, and
	// replaced while mu is held.
	state atomic.Pointer[state]

	// mu guards log, interests, cursors and completeFrom. It is held for look-ups and to add a batch of events,
	// never during decoding, I/O or waiting. The methods that change the state are called while Resource.write is
	// held, so by one goroutine at a time. Resource.write also guards waking.
	mu        sync.RWMutex
	log       window.Log[*Event]
	interests interest.Index[wakeup]
	wakeup    wakeup // of the cursors that read the whole log
	cursors   int    // number of open cursors
	// completeFrom is a position in the log. A cursor below it may have missed events that were never in the log.
	completeFrom uint64

	waking []chan struct{} // to be closed after mu is released, see wakeAll
	// busy is the number of cursors that do not wait for an event, see Cache.Busy.
	busy atomic.Int64
	// counted is the number of bytes of this log that logBudget.used includes.
	counted atomic.Int64
}

// publish makes a state visible, together with the events that led to it. Old events are removed so that the log has at
// most limit bytes. The caller must call wakeAll after it.
func (p *published) publish(next *state, events []*Event, limit int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(next, events, limit)
}

// begin does the work of publish for a resource that was unused. The log begins after revision from.
func (p *published) begin(from int64, next *state, events []*Event, limit int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.Reset(from)
	p.add(next, events, limit)
}

// add does the work of publish. The caller holds mu.
func (p *published) add(next *state, events []*Event, limit int64) {
	for _, e := range events {
		position := p.log.Append(e.Revision, e.cost(), e)
		p.interests.Append(position, e.subject(), p.wakePosting)
	}
	p.trim(limit)
	p.state.Store(next)
	p.wake(&p.wakeup)
}

// replace publishes a state with the same revision and the same objects, after all objects were loaded into memory
// or dropped from it.
func (p *published) replace(next *state, limit int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := next.objects.All()
	p.log.Resize(func(e *Event) int64 {
		e.logOnly = false
		if e.Object != nil {
			kept, _ := all.Get(e.Object.Key)
			e.logOnly = e.Object != kept
		}
		return e.cost()
	})
	p.trim(limit)
	p.state.Store(next)
}

// amend publishes a state that knows more about the same objects.
func (p *published) amend(next *state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Store(next)
}

// restart restarts the log of a followed resource at revision base, because earlier changes are unknown. Its cursors must
// then catch up from the store. The caller must call wakeAll after it.
func (p *published) restart(base int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.Clear(p.releaseEvent)
	p.log.Reset(base)
	p.log.Skip()
	p.count()
	p.completeFrom = p.log.Next()
	p.state.Store(&state{revision: base, from: base})
	p.wake(&p.wakeup)
	p.interests.Each(p.wakePosting)
}

// end makes the resource unused, if may returns true. may is called with the state, which may be nil, and the
// number of cursors. The log is dropped unless keepLog is set. The caller must call wakeAll after it.
func (p *published) end(keepLog bool, may func(st *state, cursors int) bool) (last *state, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last = p.state.Load()
	if !may(last, p.cursors) {
		return nil, false
	}
	p.state.Store(nil)
	p.wake(&p.wakeup)
	p.interests.Each(p.wakePosting)
	if !keepLog {
		p.clearLog()
	}
	return last, true
}

// addGap records that the log may lack events between two revisions, see window.Log.
func (p *published) addGap(after, before int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.AddGap(after, before)
}

// trimLog removes old events so that the log has at most limit bytes.
func (p *published) trimLog(limit int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trim(limit)
}

// dropLog drops the log. If the resource has a state, only end may call it.
func (p *published) dropLog() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clearLog()
}

// trim does the work of trimLog for a caller that holds mu.
func (p *published) trim(limit int64) {
	p.log.Trim(limit, p.releaseEvent)
	p.count()
}

// clearLog does the work of dropLog for a caller that holds mu.
func (p *published) clearLog() {
	p.log.Clear(p.releaseEvent)
	p.log.Reset(0)
	p.count()
}

// count updates the size of the log in the budget. The caller holds mu.
func (p *published) count() {
	now := p.log.Bytes()
	p.budget.add(now - p.counted.Swap(now))
}

// releaseEvent releases the memory that was in use only because of an event that has now left the log. The caller
// holds mu.
func (p *published) releaseEvent(position uint64, e *Event) {
	p.interests.Drop(position, e.subject())
	e.releaseEncodings()
	if e.logOnly {
		p.encodings.release(e.Object)
	}
}

// wakeup is a channel that cursors wait for; it is closed to wake all of them. It costs nothing while no cursor waits.
type wakeup struct {
	ch atomic.Pointer[chan struct{}]
	// waiting is the number of cursors that wait for ch. It grows while published.mu is held, also for reading.
	waiting atomic.Int64
}

// wait returns the channel. The caller holds published.mu, so that no event is appended between its check of the log
// and this call.
func (w *wakeup) wait() chan struct{} {
	for {
		if p := w.ch.Load(); p != nil {
			return *p
		}
		ch := make(chan struct{})
		if w.ch.CompareAndSwap(nil, &ch) {
			return ch
		}
	}
}

// reset removes the channel from w and returns it, so that the caller can close it. It returns nil if no cursor
// waits.
func (w *wakeup) reset() chan struct{} {
	if w.ch.Load() == nil {
		return nil
	}
	return *w.ch.Swap(nil)
}

func (p *published) wakePosting(posting *interest.Posting[wakeup]) { p.wake(&posting.User) }

// wake wakes the cursors that wait at g. Their channel is closed later by wakeAll, after mu is released. The
// caller holds mu.
func (p *published) wake(g *wakeup) {
	if ch := g.reset(); ch != nil {
		p.busy.Add(g.waiting.Swap(0))
		p.waking = append(p.waking, ch)
	}
}

// wakeAll closes the channels that wake collected, after mu was released.
func (p *published) wakeAll() {
	for i, ch := range p.waking {
		close(ch)
		p.waking[i] = nil
	}
	p.waking = p.waking[:0]
}

// join registers a cursor and marks the resource as used. It does nothing and returns false if the resource is not
// followed.
func (p *published) join(c *Cursor, used *atomic.Bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.Load() == nil {
		return false
	}
	used.Store(true)
	p.cursors++
	p.busy.Add(1)
	if key, ok := c.interestKey(); ok {
		c.posting = p.interests.Acquire(key, p.log.Next())
	}
	c.behind = !p.log.Covers(c.from)
	c.next = p.log.After(c.from)
	return true
}

// joinRemoved registers a cursor with a removed resource, if its log still has all events after c.from. So a
// watcher that was sending its initial events during the removal gets the remaining events. It reports whether it
// registered the cursor.
func (p *published) joinRemoved(c *Cursor) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.log.Len() == 0 || !p.log.Covers(c.from) {
		return false
	}
	p.cursors++
	p.busy.Add(1)
	c.next = p.log.After(c.from)
	return true
}

// leave undoes join.
func (p *published) leave(c *Cursor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cursors--
	p.busy.Add(-1)
	if c.posting != nil {
		p.interests.Release(c.posting)
		c.posting = nil
	}
}

func (p *published) hasCursors() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.cursors > 0
}

// stats returns the statistics, without Loads.
func (p *published) stats() Stats {
	p.mu.RLock()
	defer p.mu.RUnlock()
	s := Stats{Cursors: p.cursors, Interests: p.interests.Len()}
	if st := p.state.Load(); st != nil {
		s.Followed, s.Loaded, s.Revision, s.Bytes = true, st.loaded, st.revision, st.bytes
		s.Events, s.WindowBytes = p.log.Len(), p.log.Bytes()
		n, ok := st.number()
		s.Counted = ok
		if ok {
			s.Objects = int(n)
		}
	}
	return s
}

// last returns the last event of the log, nil if the log is empty.
func (p *published) last() *Event {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.log.Len() == 0 {
		return nil
	}
	return p.log.Get(p.log.Next() - 1)
}

// logStart returns the first revision after which a watch can start without catching up.
func (p *published) logStart() int64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.log.Start()
}

// eventsSince returns the current state and the events after revision that led to it. It returns false if the log does
// not have all of them, or if they are more than limit.
func (p *published) eventsSince(revision int64, limit int) (*state, []*Event, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	st := p.state.Load()
	if st == nil || !p.log.Covers(revision) {
		return st, nil, false
	}
	first := p.log.After(revision)
	if p.log.Next()-first > uint64(limit) {
		return st, nil, false
	}
	events := make([]*Event, 0, p.log.Next()-first)
	for at := first; at < p.log.Next(); at++ {
		events = append(events, p.log.Get(at))
	}
	return st, events, true
}

// maxRecounted is the largest number of events that added examines. For more events, the caller counts the
// objects.
const maxRecounted = 2048

// added returns by how many objects the number has grown from revision after to revision upTo. It counts only keys
// with the prefix that are not below from. The feed has applied all changes up to applied. It returns false if the
// log does not have all changes in between, or if there are too many.
func (p *published) added(after, upTo, applied int64, prefix, from string) (n int64, known bool) {
	if after > upTo || applied < upTo {
		return 0, false
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	log := &p.log
	if !log.Covers(after) || log.Next()-log.After(after) > maxRecounted {
		return 0, false
	}
	for at := log.After(after); at < log.Next(); at++ {
		e := log.Get(at)
		if e.Revision > upTo {
			break
		}
		o := cmp.Or(e.Object, e.Prev)
		if o.Key < from || !strings.HasPrefix(o.Key, prefix) {
			continue
		}
		switch {
		case e.Prev == nil:
			n++
		case e.Object == nil:
			n--
		}
	}
	return n, true
}

// numberAt returns the number of objects at a revision. The feed has applied everything up to applied. It returns false
// if the log does not reach back to the revision.
func (p *published) numberAt(revision, applied int64) (int64, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	st := p.state.Load()
	if st == nil || revision > max(st.revision, applied) || !p.log.Covers(revision) {
		return 0, false
	}
	n, ok := st.number()
	for at := p.log.After(revision); at < p.log.Next(); at++ {
		switch e := p.log.Get(at); {
		case e.Prev == nil:
			n--
		case e.Object == nil:
			n++
		}
	}
	return n, ok
}

// written returns the object that was written under a key at a revision, or nil if it is not in memory. st is a state
// of that revision or a later one.
func (p *published) written(st *state, key string, revision int64) *Object {
	if st.loaded {
		if o, ok := st.objects.All().Get(key); ok && o.Revision == revision {
			return o
		}
		return nil
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	for at := p.log.After(revision - 1); at < p.log.Next() && p.log.Revision(at) == revision; at++ {
		if o := p.log.Get(at).Object; o != nil && o.Key == key {
			return o
		}
	}
	return nil
}

// objects returns the objects that events of the log refer to.
func (p *published) objects() map[*Object]bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	logged := make(map[*Object]bool, 2*p.log.Len())
	for at := p.log.First(); at < p.log.Next(); at++ {
		e := p.log.Get(at)
		logged[e.Object], logged[e.Prev] = true, true
	}
	return logged
}

// load returns the loaded state of a followed resource. The objects in f were read at the revision of the log's
// end or an earlier one. load applies the later events of the log to them. It returns false if the log does not
// reach back to their revision. The caller must hold Resource.write, but not mu.
func (p *published) load(f fetchResult) (*state, bool) {
	if !p.log.Covers(f.revision) {
		return nil, false
	}
	edit := f.objects.Edit()
	bytes := f.bytes
	first := p.log.After(f.revision)
	for at := p.log.First(); at < p.log.Next(); at++ {
		e := p.log.Get(at)
		o := e.Object
		switch {
		case at >= first && o == nil:
			old, _ := edit.Delete(e.Prev.Key)
			bytes -= old.memoryBytes()
		case at >= first:
			old, _ := edit.Put(o.Key, o)
			bytes += o.memoryBytes() - old.memoryBytes()
		case o != nil:
			// The tree and the log share one object with its encodings.
			if same, ok := edit.Get(o.Key); ok && same.Revision == o.Revision && o.unread() == nil {
				edit.Put(o.Key, o)
			}
		}
	}
	return &state{revision: p.state.Load().revision, loaded: true, objects: edit.Done(), bytes: bytes}, true
}
