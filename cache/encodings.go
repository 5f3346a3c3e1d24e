package cache

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// FormID names a form of an object beyond its Data: another encoding, another
// version, a table row. The caller numbers them.
type EncodingID uint16

// Form returns a form of an object, from what is kept beside it or from make,
// whose result is then kept if the budget allows. The result is shared and must
// not be changed. make may run in several callers at once and does so outside of
// any lock. A hit takes no lock and allocates nothing.
func (r *Resource) Encoded(o *Object, id EncodingID, encode func() ([]byte, error)) ([]byte, error) {
	if data, ok := o.CachedEncoding(id); ok {
		return data, nil
	}
	data, err := encode()
	if err == nil && r != nil {
		r.cache.encodings.add(o, id, data)
	}
	return data, err
}

// Kept returns a form if it is there.
func (o *Object) CachedEncoding(id EncodingID) ([]byte, bool) {
	a := o.attached.Load()
	if a == nil {
		return nil, false
	}
	list := a.encodings.Load()
	if list == nil {
		return nil, false
	}
	for i := range *list {
		if (*list)[i].id == id {
			if !a.used.Load() {
				a.used.Store(true)
			}
			return (*list)[i].data, true
		}
	}
	return nil, false
}

// kept is what an object carries beyond itself. It is made when first needed and
// is small: the budget's clock holds it, not the object.
type attachment struct {
	encodings  atomic.Pointer[[]encoded] // closedForms once the object left the cache
	used       atomic.Bool               // used since the clock's hand last passed
	queued     atomic.Bool               // the clock knows it
	unread     *unread                   // of an object that could not be read; does not change
	unbudgeted bool                      // no budget knows the forms, see Object.free
}

type encoded struct {
	id   EncodingID
	data []byte
}

// closedForms takes no more forms.
var closedEncodings = new([]encoded)

// noForms belongs to all objects that keep no forms. It does not change.
var closedAttachment = func() *attachment {
	k := new(attachment)
	k.encodings.Store(closedEncodings)
	return k
}()

// freeForms belongs to all free objects that have no forms yet. It does not change.
var unbudgetedAttachment = &attachment{unbudgeted: true}

// formOverhead is charged for each form beside its bytes.
const encodingOverhead = 64

func encodingsSize(list *[]encoded) (n int64) {
	if list == nil {
		return 0
	}
	for i := range *list {
		n += int64(len((*list)[i].data)) + encodingOverhead
	}
	return n
}

// formBytes is the size of the forms that are kept beside an object now.
func (o *Object) encodingBytes() int64 {
	if a := o.attached.Load(); a != nil {
		return encodingsSize(a.encodings.Load())
	}
	return 0
}

// budget bounds the bytes of all forms. Objects with forms stand on a clock whose
// hand takes the forms of those that were not used since it last came by.
type encodingBudget struct {
	limit int64
	used  atomic.Int64

	mu    sync.Mutex // guards clock and hand; held for a bounded number of steps
	clock []*attachment
	hand  int

	recent recentEncodings
}

// add keeps a form with the object, unless the object has left the cache or has
// that form already.
func (b *encodingBudget) add(o *Object, id EncodingID, data []byte) {
	a := b.attach(o, id, data)
	if a == nil {
		return
	}
	b.enqueue(a)
	if b.used.Load() > b.limit {
		b.evict()
	}
}

// enqueue puts what is kept of an object on the clock.
func (b *encodingBudget) enqueue(a *attachment) {
	if a.queued.CompareAndSwap(false, true) {
		b.mu.Lock()
		b.clock = append(b.clock, a)
		b.mu.Unlock()
	}
}

// attach puts a form beside the object, and returns nil if the budget has nothing to
// do with that.
func (b *encodingBudget) attach(o *Object, id EncodingID, data []byte) *attachment {
	if int64(len(data)) > b.limit/4 {
		return nil
	}
	a := o.attached.Load()
	if a == nil || a == unbudgetedAttachment {
		created := &attachment{unbudgeted: a == unbudgetedAttachment}
		if !o.attached.CompareAndSwap(a, created) {
			created = o.attached.Load()
		}
		a = created
	}
	for {
		old := a.encodings.Load()
		if old == closedEncodings {
			return nil
		}
		var list []encoded
		if old != nil {
			for i := range *old {
				if (*old)[i].id == id {
					return nil
				}
			}
			list = make([]encoded, 0, len(*old)+1)
			list = append(list, *old...)
		}
		list = append(list, encoded{id, data})
		if a.encodings.CompareAndSwap(old, &list) {
			if a.unbudgeted {
				return nil
			}
			b.used.Add(int64(len(data)) + encodingOverhead)
			return a
		}
	}
}

// maxYoung bounds the bytes of forms that nobody has used yet.
const maxRecentBytes = 4 << 20

// young are the objects with a form that their writer made, in the order of the
// writes. Those who watch use it soon or never, and most objects are not read as what
// they were written as: a form that was not used when many younger ones have come is
// forgotten, and one that was goes on the clock.
type recentEncodings struct {
	mu    sync.Mutex // guards what follows
	queue []recentEncoding
	bytes int64
}

type recentEncoding struct {
	object *Object
	cost   int64
}

// addYoung is add for a form that nobody has asked for.
func (b *encodingBudget) addRecent(o *Object, id EncodingID, data []byte) {
	if b.attach(o, id, data) == nil {
		return
	}
	recent := &b.recent
	cost := int64(len(data)) + encodingOverhead
	recent.mu.Lock()
	defer recent.mu.Unlock()
	recent.queue = append(recent.queue, recentEncoding{o, cost})
	recent.bytes += cost
	for most := min(maxRecentBytes, b.limit/8); recent.bytes > most; {
		oldest := recent.queue[0]
		recent.queue[0] = recentEncoding{}
		recent.queue = recent.queue[1:]
		recent.bytes -= oldest.cost
		b.promoteOrForget(oldest.object)
	}
}

func (b *encodingBudget) promoteOrForget(o *Object) {
	a := o.attached.Load()
	if a == nil || a.queued.Load() {
		return
	}
	if a.used.Load() || a.unread != nil {
		b.enqueue(a)
		return
	}
	old := a.encodings.Load()
	if old == closedEncodings || !a.encodings.CompareAndSwap(old, nil) {
		return // left the cache, or got another form and with that its place on the clock
	}
	b.used.Add(-encodingsSize(old))
	// What is attached to k meanwhile is on the clock, but not found again.
	o.attached.CompareAndSwap(a, nil)
}

// release gives up the forms of an object that has left the cache, for good.
func (b *encodingBudget) release(o *Object) {
	a := o.attached.Load()
	if a == nil {
		if o.attached.CompareAndSwap(nil, closedAttachment) {
			return
		}
		a = o.attached.Load()
	}
	if a == closedAttachment {
		return
	}
	if old := a.encodings.Swap(closedEncodings); old != closedEncodings {
		b.used.Add(-encodingsSize(old))
	}
	if a.unread != nil {
		if resolved := a.unread.resolved.Load(); resolved != nil {
			b.release(resolved)
		}
	}
}

// evict moves the hand until the forms fit again. It gives up when another
// goroutine is at it or after a bounded number of steps: the next form continues.
func (b *encodingBudget) evict() {
	const steps = 256
	if !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	for range steps {
		if b.used.Load() <= b.limit || len(b.clock) == 0 {
			return
		}
		if b.hand >= len(b.clock) {
			b.hand = 0
		}
		if !b.forgetUnused(b.hand) {
			b.hand++
		}
	}
}

// pass forgets the forms at a place of the clock, unless they were used since the last
// time, and says whether it did: another place is there then. The caller holds mu.
func (b *encodingBudget) forgetUnused(place int) bool {
	a := b.clock[place]
	if a.encodings.Load() != closedEncodings {
		if a.used.Swap(false) {
			return false
		}
		// From here on a new form puts it on the clock again.
		a.queued.Store(false)
		old := a.encodings.Load()
		if old == closedEncodings || !a.encodings.CompareAndSwap(old, nil) {
			old = nil
		}
		b.used.Add(-encodingsSize(old))
	}
	last := len(b.clock) - 1
	b.clock[place] = b.clock[last]
	b.clock[last] = nil
	b.clock = b.clock[:last]
	return true
}

// expire forgets the forms that were not used since it, or the hand, last came by:
// what nobody asks for any more gives its memory back though there is no want of it.
func (b *encodingBudget) expire() {
	const steps = 4096 // under the lock, which writers wait for
	b.mu.Lock()
	defer b.mu.Unlock()
	for place, n := len(b.clock)-1, 0; place >= 0; place, n = min(place, len(b.clock))-1, n+1 {
		b.forgetUnused(place)
		if n%steps == steps-1 {
			b.mu.Unlock()
			runtime.Gosched()
			b.mu.Lock()
		}
	}
}

// sweep forgets the objects that have left the cache.
func (b *encodingBudget) forgetReleased() {
	b.mu.Lock()
	defer b.mu.Unlock()
	remaining := b.clock[:0]
	for _, a := range b.clock {
		if a.encodings.Load() != closedEncodings {
			remaining = append(remaining, a)
		}
	}
	clear(b.clock[len(remaining):])
	b.clock = remaining
	b.hand = 0
}

// offers are forms that writers made of objects whose event is yet to come.
type pendingEncodings struct {
	mu      sync.Mutex // guards pending
	objects map[string]pendingObject
}

type pendingObject struct {
	revision  int64
	encodings []encoded
}

// maxOffers bounds the pending offers of a resource.
const maxPendingObjects = 1024

// Offer hands over a form that a writer made anyway of the object that it wrote
// under key (below the prefix) at revision. It is kept if that state is the
// current one, or becomes it soon. A resource that is unused drops it.
func (r *Resource) AddEncoding(key string, revision int64, id EncodingID, data []byte) {
	pending := &r.pending
	pending.mu.Lock()
	defer pending.mu.Unlock()
	// The feed publishes a state before it asks for offers, so either it is
	// seen here or the feed will see what is entered here.
	st := r.state.Load()
	if st == nil {
		return
	}
	if st.revision >= revision {
		if o := r.writtenObject(st, key, revision); o != nil {
			r.cache.encodings.addRecent(o, id, data)
		}
		return
	}
	p, ok := pending.objects[key]
	if !ok && len(pending.objects) >= maxPendingObjects {
		return
	}
	if p.revision > revision {
		return
	}
	if p.revision < revision {
		p = pendingObject{revision: revision}
	}
	p.encodings = append(p.encodings, encoded{id, data})
	if pending.objects == nil {
		pending.objects = make(map[string]pendingObject)
	}
	pending.objects[key] = p
}

// written returns the object that is in memory of what was written under a key at a
// revision, nil if there is none.
func (r *Resource) writtenObject(st *state, key string, revision int64) *Object {
	if st.loaded {
		if o, ok := st.objects.All().Get(key); ok && o.Revision == revision {
			return o
		}
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for p := r.changes.log.After(revision - 1); p < r.changes.log.Next() && r.changes.log.Revision(p) == revision; p++ {
		if o := r.changes.log.Get(p).Object; o != nil && o.Key == key {
			return o
		}
	}
	return nil
}

// take attaches pending offers to the objects of events and forgets those that
// came too late.
func (pending *pendingEncodings) attach(b *encodingBudget, events []*Event, revision int64) {
	pending.mu.Lock()
	defer pending.mu.Unlock()
	if len(pending.objects) == 0 {
		return
	}
	for _, event := range events {
		o := event.Object
		if o == nil {
			continue
		}
		if p, ok := pending.objects[o.Key]; ok && p.revision == o.Revision {
			for _, e := range p.encodings {
				b.addRecent(o, e.id, e.data)
			}
			delete(pending.objects, o.Key)
		}
	}
	for key, p := range pending.objects {
		if p.revision <= revision {
			delete(pending.objects, key)
		}
	}
}

func (pending *pendingEncodings) clear() {
	pending.mu.Lock()
	defer pending.mu.Unlock()
	pending.objects = nil
}
