package cache

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// FormID names a form of an object beyond its Data: another encoding, another
// version, a table row. The caller numbers them.
type FormID uint16

// Form returns a form of an object, from what is kept beside it or from make,
// whose result is then kept if the budget allows. The result is shared and must
// not be changed. make may run in several callers at once and does so outside of
// any lock. A hit takes no lock and allocates nothing.
func (r *Resource) Form(o *Object, id FormID, make func() ([]byte, error)) ([]byte, error) {
	if data, ok := o.Kept(id); ok {
		return data, nil
	}
	data, err := make()
	if err == nil && r != nil {
		r.cache.forms.add(o, id, data)
	}
	return data, err
}

// Kept returns a form if it is there.
func (o *Object) Kept(id FormID) ([]byte, bool) {
	k := o.kept.Load()
	if k == nil {
		return nil, false
	}
	list := k.forms.Load()
	if list == nil {
		return nil, false
	}
	for i := range *list {
		if (*list)[i].id == id {
			if !k.hit.Load() {
				k.hit.Store(true)
			}
			return (*list)[i].data, true
		}
	}
	return nil, false
}

// kept is what an object carries beyond itself. It is made when first needed and
// is small: the budget's clock holds it, not the object.
type kept struct {
	forms  atomic.Pointer[[]form] // closedForms once the object left the cache
	hit    atomic.Bool            // used since the clock's hand last passed
	queued atomic.Bool            // the clock knows it
	unread *unread                // of an object that could not be read; does not change
	free   bool                   // no budget knows the forms, see Object.free
}

type form struct {
	id   FormID
	data []byte
}

// closedForms takes no more forms.
var closedForms = new([]form)

// noForms belongs to all objects that keep no forms. It does not change.
var noForms = func() *kept {
	k := new(kept)
	k.forms.Store(closedForms)
	return k
}()

// freeForms belongs to all free objects that have no forms yet. It does not change.
var freeForms = &kept{free: true}

// formOverhead is charged for each form beside its bytes.
const formOverhead = 64

func size(forms *[]form) (n int64) {
	if forms == nil {
		return 0
	}
	for i := range *forms {
		n += int64(len((*forms)[i].data)) + formOverhead
	}
	return n
}

// formBytes is the size of the forms that are kept beside an object now.
func (o *Object) formBytes() int64 {
	if k := o.kept.Load(); k != nil {
		return size(k.forms.Load())
	}
	return 0
}

// budget bounds the bytes of all forms. Objects with forms stand on a clock whose
// hand takes the forms of those that were not used since it last came by.
type budget struct {
	limit int64
	used  atomic.Int64

	mu    sync.Mutex // guards clock and hand; held for a bounded number of steps
	clock []*kept
	hand  int

	young young
}

// add keeps a form with the object, unless the object has left the cache or has
// that form already.
func (b *budget) add(o *Object, id FormID, data []byte) {
	k := b.attach(o, id, data)
	if k == nil {
		return
	}
	b.enqueue(k)
	if b.used.Load() > b.limit {
		b.evict()
	}
}

// enqueue puts what is kept of an object on the clock.
func (b *budget) enqueue(k *kept) {
	if k.queued.CompareAndSwap(false, true) {
		b.mu.Lock()
		b.clock = append(b.clock, k)
		b.mu.Unlock()
	}
}

// attach puts a form beside the object, and returns nil if the budget has nothing to
// do with that.
func (b *budget) attach(o *Object, id FormID, data []byte) *kept {
	if int64(len(data)) > b.limit/4 {
		return nil
	}
	k := o.kept.Load()
	if k == nil || k == freeForms {
		own := &kept{free: k == freeForms}
		if !o.kept.CompareAndSwap(k, own) {
			own = o.kept.Load()
		}
		k = own
	}
	for {
		old := k.forms.Load()
		if old == closedForms {
			return nil
		}
		var list []form
		if old != nil {
			for i := range *old {
				if (*old)[i].id == id {
					return nil
				}
			}
			list = make([]form, 0, len(*old)+1)
			list = append(list, *old...)
		}
		list = append(list, form{id, data})
		if k.forms.CompareAndSwap(old, &list) {
			if k.free {
				return nil
			}
			b.used.Add(int64(len(data)) + formOverhead)
			return k
		}
	}
}

// maxYoung bounds the bytes of forms that nobody has used yet.
const maxYoung = 4 << 20

// young are the objects with a form that their writer made, in the order of the
// writes. Those who watch use it soon or never, and most objects are not read as what
// they were written as: a form that was not used when many younger ones have come is
// forgotten, and one that was goes on the clock.
type young struct {
	mu    sync.Mutex // guards what follows
	queue []youngForm
	bytes int64
}

type youngForm struct {
	o    *Object
	cost int64
}

// addYoung is add for a form that nobody has asked for.
func (b *budget) addYoung(o *Object, id FormID, data []byte) {
	if b.attach(o, id, data) == nil {
		return
	}
	y := &b.young
	cost := int64(len(data)) + formOverhead
	y.mu.Lock()
	defer y.mu.Unlock()
	y.queue = append(y.queue, youngForm{o, cost})
	y.bytes += cost
	for most := min(maxYoung, b.limit/8); y.bytes > most; {
		oldest := y.queue[0]
		y.queue[0] = youngForm{}
		y.queue = y.queue[1:]
		y.bytes -= oldest.cost
		b.comeOfAge(oldest.o)
	}
}

func (b *budget) comeOfAge(o *Object) {
	k := o.kept.Load()
	if k == nil || k.queued.Load() {
		return
	}
	if k.hit.Load() || k.unread != nil {
		b.enqueue(k)
		return
	}
	old := k.forms.Load()
	if old == closedForms || !k.forms.CompareAndSwap(old, nil) {
		return // left the cache, or got another form and with that its place on the clock
	}
	b.used.Add(-size(old))
	// What is attached to k meanwhile is on the clock, but not found again.
	o.kept.CompareAndSwap(k, nil)
}

// release gives up the forms of an object that has left the cache, for good.
func (b *budget) release(o *Object) {
	k := o.kept.Load()
	if k == nil {
		if o.kept.CompareAndSwap(nil, noForms) {
			return
		}
		k = o.kept.Load()
	}
	if k == noForms {
		return
	}
	if old := k.forms.Swap(closedForms); old != closedForms {
		b.used.Add(-size(old))
	}
	if k.unread != nil {
		if twin := k.unread.twin.Load(); twin != nil {
			b.release(twin)
		}
	}
}

// evict moves the hand until the forms fit again. It gives up when another
// goroutine is at it or after a bounded number of steps: the next form continues.
func (b *budget) evict() {
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
		if !b.pass(b.hand) {
			b.hand++
		}
	}
}

// pass forgets the forms at a place of the clock, unless they were used since the last
// time, and says whether it did: another place is there then. The caller holds mu.
func (b *budget) pass(place int) bool {
	k := b.clock[place]
	if k.forms.Load() != closedForms {
		if k.hit.Swap(false) {
			return false
		}
		// From here on a new form puts it on the clock again.
		k.queued.Store(false)
		old := k.forms.Load()
		if old == closedForms || !k.forms.CompareAndSwap(old, nil) {
			old = nil
		}
		b.used.Add(-size(old))
	}
	last := len(b.clock) - 1
	b.clock[place] = b.clock[last]
	b.clock[last] = nil
	b.clock = b.clock[:last]
	return true
}

// expire forgets the forms that were not used since it, or the hand, last came by:
// what nobody asks for any more gives its memory back though there is no want of it.
func (b *budget) expire() {
	const steps = 4096 // under the lock, which writers wait for
	b.mu.Lock()
	defer b.mu.Unlock()
	for place, n := len(b.clock)-1, 0; place >= 0; place, n = min(place, len(b.clock))-1, n+1 {
		b.pass(place)
		if n%steps == steps-1 {
			b.mu.Unlock()
			runtime.Gosched()
			b.mu.Lock()
		}
	}
}

// sweep forgets the objects that have left the cache.
func (b *budget) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest := b.clock[:0]
	for _, k := range b.clock {
		if k.forms.Load() != closedForms {
			rest = append(rest, k)
		}
	}
	clear(b.clock[len(rest):])
	b.clock = rest
	b.hand = 0
}

// offers are forms that writers made of objects whose event is yet to come.
type offers struct {
	mu      sync.Mutex // guards pending
	pending map[string]offer
}

type offer struct {
	revision int64
	forms    []form
}

// maxOffers bounds the pending offers of a resource.
const maxOffers = 1024

// Offer hands over a form that a writer made anyway of the object that it wrote
// under key (below the prefix) at revision. It is kept if that state is the
// current one, or becomes it soon. A resource that is unused drops it.
func (r *Resource) Offer(key string, revision int64, id FormID, data []byte) {
	f := &r.offers
	f.mu.Lock()
	defer f.mu.Unlock()
	// The feed publishes a state before it asks for offers, so either it is
	// seen here or the feed will see what is entered here.
	st := r.state.Load()
	if st == nil {
		return
	}
	if st.revision >= revision {
		if o := r.written(st, key, revision); o != nil {
			r.cache.forms.addYoung(o, id, data)
		}
		return
	}
	p, ok := f.pending[key]
	if !ok && len(f.pending) >= maxOffers {
		return
	}
	if p.revision > revision {
		return
	}
	if p.revision < revision {
		p = offer{revision: revision}
	}
	p.forms = append(p.forms, form{id, data})
	if f.pending == nil {
		f.pending = make(map[string]offer)
	}
	f.pending[key] = p
}

// written returns the object that is in memory of what was written under a key at a
// revision, nil if there is none.
func (r *Resource) written(st *state, key string, revision int64) *Object {
	if st.held {
		if o, ok := st.objects.All().Get(key); ok && o.Revision == revision {
			return o
		}
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for p := r.log.After(revision - 1); p < r.log.Next() && r.log.Revision(p) == revision; p++ {
		if o := r.log.Get(p).Object; o != nil && o.Key == key {
			return o
		}
	}
	return nil
}

// take attaches pending offers to the objects of events and forgets those that
// came too late.
func (f *offers) take(b *budget, events []*Event, revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pending) == 0 {
		return
	}
	for _, e := range events {
		o := e.Object
		if o == nil {
			continue
		}
		if p, ok := f.pending[o.Key]; ok && p.revision == o.Revision {
			for _, form := range p.forms {
				b.addYoung(o, form.id, form.data)
			}
			delete(f.pending, o.Key)
		}
	}
	for key, p := range f.pending {
		if p.revision <= revision {
			delete(f.pending, key)
		}
	}
}

func (f *offers) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending = nil
}
