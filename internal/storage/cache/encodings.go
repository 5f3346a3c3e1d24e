package cache

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/keelson-dev/keelson/internal/storage/cache/index"
)

// EncodingID identifies an encoding of an object other than its Data: another media type, another version, a row of a
// table. The caller of the cache assigns the numbers, which have 16 bits. Some encodings become wrong after some time
// although the object does not change. The identifier of such an encoding also has the period in which it was made
// (see In). The encoding is found only with the same period, and an encoding of another period replaces it.
type EncodingID uint32

const periodShift = 16

// In returns the identifier of an encoding that is made in a period. Period 0 is for encodings that never become
// wrong.
func (id EncodingID) In(period uint16) EncodingID {
	return id.WithoutPeriod() | EncodingID(period)<<periodShift
}

// WithoutPeriod returns the number of the encoding.
func (id EncodingID) WithoutPeriod() EncodingID { return id & (1<<periodShift - 1) }

// Period returns the period of In, or 0.
func (id EncodingID) Period() uint16 { return uint16(id >> periodShift) }

// withEncoding returns a copy of a list with one more encoding, and the number of bytes by which the charge to the
// budget grows. The new encoding replaces one of another period.
func withEncoding(old []encoded, added encoded) (list []encoded, cost int64) {
	list, cost = make([]encoded, 0, len(old)+1), int64(len(added.data))+encodingOverhead
	for _, e := range old {
		if e.id.WithoutPeriod() == added.id.WithoutPeriod() {
			cost -= int64(len(e.data)) + encodingOverhead
			continue
		}
		list = append(list, e)
	}
	return append(list, added), cost
}

// Encoded returns an encoding of an object: the cached one, or else the result of encode, which is cached if the budget
// allows. The result is shared and must not be changed. Several callers may run encode at the same time, outside of any
// lock. If the encoding is cached, Encoded takes no lock and does not allocate.
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

// CachedEncoding returns an encoding if it is cached, and false otherwise.
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

// attachment is the mutable part of an object. It is created when it is first needed. It is a separate allocation so
// that the budget's clock keeps only the attachment alive and not the object.
type attachment struct {
	encodings  atomic.Pointer[[]encoded] // closedEncodings after the object left the cache
	used       atomic.Bool               // used since the hand of the clock last passed
	queued     atomic.Bool               // the attachment is on the clock
	unread     *unread                   // set if the object could not be read; immutable
	unbudgeted bool                      // the budget does not count these encodings, see Object.allowUnbudgeted
}

// encoded is one cached encoding.
type encoded struct {
	id   EncodingID
	data []byte
}

// closedEncodings is the list of an object that has left the cache. No encoding is added to it.
var closedEncodings = new([]encoded)

// closedAttachment is shared by all objects whose encodings are never cached. It is immutable.
var closedAttachment = func() *attachment {
	k := new(attachment)
	k.encodings.Store(closedEncodings)
	return k
}()

// unbudgetedAttachment is shared by all unbudgeted objects without encodings. It is immutable.
var unbudgetedAttachment = &attachment{unbudgeted: true}

// encodingOverhead is charged for each encoding in addition to its bytes.
const encodingOverhead = 64

// encodingsSize returns what the budget is charged for a list of encodings, in bytes.
func encodingsSize(list *[]encoded) (n int64) {
	if list == nil {
		return 0
	}
	for i := range *list {
		n += int64(len((*list)[i].data)) + encodingOverhead
	}
	return n
}

// encodingBytes returns the size of the encodings that are cached with the object now.
func (o *Object) encodingBytes() int64 {
	if a := o.attached.Load(); a != nil {
		return encodingsSize(a.encodings.Load())
	}
	return 0
}

// encodingBudget limits the bytes of all cached encodings with the clock algorithm: the attachments are in a ring,
// the clock, along which a position, the hand, moves. Where the hand passes, it clears the mark of an attachment
// that was used since its last round, and drops the encodings of one that was not.
type encodingBudget struct {
	limit   int64
	used    atomic.Int64
	dropped atomic.Int64 // bytes that evict has dropped, in all

	mu    sync.Mutex // guards clock and hand; held for a bounded number of steps
	clock []*attachment
	hand  int

	recent recentEncodings
}

// add caches an encoding, unless the object has left the cache or already has it.
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

// enqueue puts an attachment on the clock, unless it is there.
func (b *encodingBudget) enqueue(a *attachment) {
	if a.queued.CompareAndSwap(false, true) {
		b.mu.Lock()
		b.clock = append(b.clock, a)
		b.mu.Unlock()
	}
}

// attach adds an encoding to the attachment of an object, and charges it to the budget. It returns nil if it added
// nothing, or if the budget does not count the object's encodings.
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
		var before []encoded
		if old != nil {
			for i := range *old {
				if (*old)[i].id == id {
					return nil
				}
			}
			before = *old
		}
		list, cost := withEncoding(before, encoded{id, data})
		if a.encodings.CompareAndSwap(old, &list) {
			if a.unbudgeted {
				return nil
			}
			b.used.Add(cost)
			return a
		}
	}
}

// maxRecentBytes bounds the bytes of encodings that were made by writes and not requested yet.
const maxRecentBytes = 4 << 20

// recentEncodings are the objects with an encoding that a write made, in the order of the writes. Watchers use
// such an encoding within a moment or never, and most objects are not read in the encoding of their write. When
// maxRecentBytes of newer encodings have been added, an encoding leaves the queue: it is dropped if it is still
// unused, and otherwise put on the clock.
type recentEncodings struct {
	mu    sync.Mutex // guards what follows
	queue []recentEncoding
	bytes int64
}

// recentEncoding is one entry of the queue. cost is the number of bytes that the budget is charged for it.
type recentEncoding struct {
	object *Object
	cost   int64
}

// addRecent is like add, for an encoding that was not requested yet.
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

// promoteOrForget puts the encodings of an object that leaves the queue on the clock if they were used, and otherwise
// drops them.
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
		return // o left the cache, or has got another encoding, with which it was put on the clock
	}
	b.used.Add(-encodingsSize(old))
	// An encoding that another goroutine adds to a at this moment is on the clock, but o no longer refers to it.
	o.attached.CompareAndSwap(a, nil)
}

// release drops the encodings of an object that has left the cache. No encoding is added to it later.
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

// releaseAll releases objects that are no longer loaded, except the objects in keep.
func (b *encodingBudget) releaseAll(objects index.Set[*Object], keep map[*Object]bool) {
	objects.All().Ascend("", "", func(o *Object) bool {
		if !keep[o] {
			b.release(o)
		}
		return true
	})
	b.forgetReleased()
}

// evict moves the hand until the encodings fit in the budget. It stops at once if another goroutine is doing this,
// and otherwise after a bounded number of steps. The next call of add continues.
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
		before := b.used.Load()
		if !b.forgetUnused(b.hand) {
			b.hand++
			continue
		}
		b.dropped.Add(max(0, before-b.used.Load()))
	}
}

// forgetUnused drops the encodings at a position of the clock, unless they were used since the hand last passed. If it
// drops them, it returns true, and another attachment is moved to the position. The caller holds mu.
func (b *encodingBudget) forgetUnused(place int) bool {
	a := b.clock[place]
	if a.encodings.Load() != closedEncodings {
		if a.used.Swap(false) {
			return false
		}
		// From here on a new encoding puts the attachment on the clock again.
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

// expire drops the encodings that were not used since the last call of expire or the last pass of the hand. So unused
// encodings are dropped even if the budget is not exhausted.
func (b *encodingBudget) expire() {
	const steps = 4096 // per lock of mu, for which writers wait
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

// forgetReleased removes the objects that have left the cache from the clock.
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

// pendingEncodings are encodings that writes made of objects whose event has not arrived from the feed yet.
type pendingEncodings struct {
	mu      sync.Mutex // guards objects
	objects map[string]pendingObject
}

// pendingObject is the encodings of one object at one revision.
type pendingObject struct {
	revision  int64
	encodings []encoded
}

// maxPendingObjects bounds the pending objects of a resource.
const maxPendingObjects = 1024

// AddEncoding adds an encoding that a write has made of its object. The write stored the object under key (below
// the prefix) at revision. The encoding is cached if the cache has that object at that revision, or when the cache
// receives it soon. It is dropped if the resource is unused.
func (r *Resource) AddEncoding(key string, revision int64, id EncodingID, data []byte) {
	pending := &r.pending
	pending.mu.Lock()
	defer pending.mu.Unlock()
	// The feed publishes a state before it takes the pending encodings. So either this call sees the state, or the
	// feed sees the entry that this call makes.
	st := r.published.state.Load()
	if st == nil {
		return
	}
	if st.revision >= revision {
		if o := r.published.written(st, key, revision); o != nil {
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

// attach caches the pending encodings of the objects in events. Then it drops the pending encodings of revisions
// up to revision that matched no event.
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

// clear drops all pending encodings.
func (pending *pendingEncodings) clear() {
	pending.mu.Lock()
	defer pending.mu.Unlock()
	pending.objects = nil
}
