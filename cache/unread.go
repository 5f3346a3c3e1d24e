package cache

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/cache/index"
	"github.com/keelson-dev/keelson/storage"
)

// An object whose stored value cannot be read, most often because the key that it is
// encrypted with is not at hand, is kept unread: with its stored bytes and the error.
// Nothing that other objects need waits for it. It becomes readable in two ways:
//
//   - Somebody asks for it (Resource.Readable) and waits for the key.
//   - The resource's resolver, a goroutine that runs while the resource has unread
//     objects, obtains what they need, in the background and with pauses that grow.
//
// The readable twin is kept beside the unread object, for those who hold the unread
// one (an event of the log, an old snapshot), and the resolver puts it into the tree in
// its place. There an index of its own lists the unread objects.

const (
	// maxObtaining is how many needs of a resource are obtained at the same time.
	maxObtaining = 4
	// obtainTimeout bounds one attempt of the resolver.
	obtainTimeout = 10 * time.Second
	// Attempts that fail are repeated after a pause that doubles from firstRetry to
	// lastRetry.
	firstRetry, lastRetry = 50 * time.Millisecond, 10 * time.Second
	// resolverPause is the least time between two looks at the unread objects.
	resolverPause = 10 * time.Millisecond
)

// unread is what is kept of a value that could not be read. Only twin changes.
type unread struct {
	value    []byte                // as stored
	err      error                 // why
	pending  *storage.PendingError // what it needs; nil if that is not known
	resolved atomic.Pointer[Object]
}

// leaveUnread makes o an object that could not be read.
func (r *Resource) markUnread(o *Object, value []byte, err error) {
	// A copy: the value may be part of something larger, and is kept for long.
	u := &unread{value: bytes.Clone(value), err: err}
	if !errors.As(err, &u.pending) {
		r.cache.logger.Error("cache: a stored object cannot be read",
			"key", r.config.Prefix+o.Key, "revision", o.Revision, "error", err)
	}
	o.attached.Store(&attachment{unread: u})
}

// unread returns what is kept of an object that could not be read, nil for others.
func (o *Object) unread() *unread {
	if k := o.attached.Load(); k != nil {
		return k.unread
	}
	return nil
}

// size is how many bytes of its value an object keeps alive.
func (o *Object) size() int64 {
	if u := o.unread(); u != nil {
		return int64(len(u.value))
	}
	return int64(len(o.Data))
}

// Now returns the object that can be read in place of one that could not be, if
// somebody has read it since; else it returns o itself.
func (o *Object) Resolved() *Object {
	if u := o.unread(); u != nil {
		if resolved := u.resolved.Load(); resolved != nil {
			return resolved
		}
	}
	return o
}

// Readable returns o, or what can be read in its place: for an object that could not be
// read when it came, it tries again, and waits until ctx ends for what that takes. The
// error is the codec's, or that of obtaining what the codec needs.
func (r *Resource) Readable(ctx context.Context, o *Object) (*Object, error) {
	if o = o.Resolved(); o.unread() == nil {
		return o, nil
	}
	var object *Object
	err := storage.Waiting(ctx, func() (err error) {
		object, err = r.readAgain(o)
		return err
	})
	if err != nil {
		return nil, err
	}
	r.resolver.wake(true) // others may be readable as well
	return object, nil
}

// readAgain reads an unread object and keeps the result beside it.
func (r *Resource) readAgain(o *Object) (*Object, error) {
	u := o.unread()
	h, err := r.config.Codec.Read(r.config.Prefix+o.Key, u.value, o.Revision)
	if err != nil {
		return nil, err
	}
	object := &Object{
		Key: o.Key, Namespace: o.Namespace, Name: o.Name,
		Revision: o.Revision, CreateRevision: o.CreateRevision,
		Labels: h.Labels, Fields: h.Fields, Data: h.Data,
	}
	if !u.resolved.CompareAndSwap(nil, object) {
		return u.resolved.Load(), nil
	}
	// Nothing is kept beside the twin of an object that has left the cache. Whoever
	// lets o go after this line sees the twin.
	if o.attached.Load().encodings.Load() == closedEncodings {
		r.cache.encodings.release(object)
	}
	return object, nil
}

// unreadField is the value of the last index of a tree for unread objects. No field has
// this text. They have it in all indexes, so that no place depends on their number.
const unreadField = "\x00unread"

// newObjects returns an empty tree for the resource: its indexes, and one beyond them
// that lists the unread objects.
func (r *Resource) newObjectSet() index.Set[*Object] {
	n := len(r.config.Indexes) + 1
	listed := make([]string, n)
	for i := range listed {
		listed[i] = unreadField
	}
	return index.NewSet(n, func(o *Object) []string {
		if o.unread() != nil {
			return listed
		}
		return o.Fields
	})
}

// unreadOf is the tree of the unread objects of a tree that newObjects began.
func (r *Resource) unreadObjects(objects index.Set[*Object]) index.Tree[*Object] {
	return objects.WithField(len(r.config.Indexes), unreadField)
}

// Unread returns how many objects of the snapshot could not be read when it was taken.
// Its indexes lack them, and so do the forms of its groups.
func (s Snapshot) Unread() int {
	if s.objects.All().Len() == 0 {
		return 0
	}
	return s.objects.WithField(len(s.indexes), unreadField).Len()
}

// Unread returns how many objects of the resource cannot be read now, as far as they
// are in memory.
func (r *Resource) Unread() int {
	if st := r.state.Load(); st != nil && st.loaded {
		return r.unreadObjects(st.objects).Len()
	}
	return 0
}

// RetryUnread has all objects that could not be read tried again, soon and in the
// background: what they need may be there now.
func (c *Cache) RetryUnread() {
	for _, r := range c.all() {
		r.resolver.wake(true)
	}
}

// resolver is a resource's work on its unread objects.
type resolver struct {
	// running says that the goroutine runs. Guarded by Resource.write.
	running bool

	mu    sync.Mutex    // guards what follows
	woken chan struct{} // made by the first run; capacity 1
	all   bool          // try everything, whatever failed before
}

// wake has the resolver, if it runs, look at the unread objects; all has it try all of
// them, also those that it would leave for later.
func (w *resolver) wake(all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = w.all || all
	select {
	case w.woken <- struct{}{}: // never if it did not run yet
	default:
	}
}

// begin returns the channel that wake sends to.
func (w *resolver) begin() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken == nil {
		w.woken = make(chan struct{}, 1)
	}
	return w.woken
}

func (w *resolver) takeAll() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = false
	return all
}

// resolveUnread starts the resolver, or tells it, if the resource has unread objects.
// The caller holds write.
func (r *Resource) resolveUnread() {
	if r.Unread() == 0 {
		return
	}
	if r.resolver.running {
		r.resolver.wake(false)
		return
	}
	woken := r.resolver.begin()
	r.resolver.running = r.cache.spawn(func() { r.resolve(woken) })
}

// need is something that unread objects need, and how obtaining it went so far.
type need struct {
	obtaining bool
	failures  int
	next      time.Time // of the next attempt
}

// obtained is the end of an attempt.
type obtained struct {
	need string
	err  error
}

// resolve is the resolver: it runs until no object is unread or the cache is closed.
func (r *Resource) resolve(woken <-chan struct{}) {
	run := resolving{r: r, needs: map[string]*need{}, results: make(chan obtained, maxObtaining)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, more := run.step(time.Now(), r.resolver.takeAll())
		if !more && r.stopResolver() {
			return
		}
		if !r.cache.pause(resolverPause) {
			return
		}
		timer.Reset(wait)
		select {
		case <-r.cache.background.ctx.Done():
			return
		case <-woken:
		case <-timer.C:
		case result := <-run.results:
			run.finish(result, time.Now())
		}
	}
}

// resolved ends the resolver, unless an object came to be unread meanwhile.
func (r *Resource) stopResolver() bool {
	r.write.Lock()
	defer r.write.Unlock()
	if r.Unread() > 0 {
		return false
	}
	r.resolver.running = false
	return true
}

// resolving is one run of the resolver. It belongs to its goroutine, but for results.
type resolving struct {
	r         *Resource
	needs     map[string]*need
	obtaining int
	results   chan obtained // has room for all that are under way
}

// step reads again what can be read, begins to obtain what is due, and returns for how
// long there is nothing to do. It returns false if nothing is unread.
func (s *resolving) step(now time.Time, all bool) (wait time.Duration, more bool) {
	st := s.r.state.Load()
	if st == nil || !st.loaded {
		return 0, false
	}
	if all {
		for _, n := range s.needs {
			n.failures, n.next = 0, time.Time{}
		}
	}
	wait = math.MaxInt64
	resolved := map[*Object]*Object{}
	s.r.unreadObjects(st.objects).Ascend("", "", func(o *Object) bool {
		more = true
		u := o.unread()
		switch object := u.resolved.Load(); {
		case object != nil:
			resolved[o] = object
		case u.pending != nil:
			wait = min(wait, s.obtain(u.pending, now))
		case all:
			if object, err := s.r.readAgain(o); err == nil {
				resolved[o] = object
			}
		}
		return true
	})
	s.r.replaceUnread(resolved)
	return wait, more
}

// obtain begins an attempt if one is due, and returns when to look again.
func (s *resolving) obtain(p *storage.PendingError, now time.Time) time.Duration {
	n := s.needs[p.Need]
	if n == nil {
		n = &need{}
		s.needs[p.Need] = n
	}
	switch wait := n.next.Sub(now); {
	case n.obtaining, s.obtaining == maxObtaining:
		return math.MaxInt64 // the end of an attempt wakes the resolver
	case wait > 0:
		return wait
	}
	n.obtaining = true
	s.obtaining++
	s.r.cache.spawn(func() {
		ctx, cancel := context.WithTimeout(s.r.cache.background.ctx, obtainTimeout)
		defer cancel()
		s.results <- obtained{p.Need, p.Obtain(ctx)}
	})
	return math.MaxInt64
}

// finish notes how an attempt went and reads what became readable.
func (s *resolving) finish(result obtained, now time.Time) {
	n := s.needs[result.need]
	n.obtaining = false
	s.obtaining--
	err := result.err
	if err == nil {
		err = s.readAll(result.need)
	}
	log := s.r.cache.logger
	switch {
	case err == nil:
		if n.failures > 0 {
			log.Info("cache: objects can be read again", "resource", s.r.config.Resource, "needed", result.need)
		}
		delete(s.needs, result.need)
		return
	case n.failures == 0:
		log.Error("cache: objects cannot be read yet",
			"resource", s.r.config.Resource, "needed", result.need, "error", err)
	}
	n.next = now.Add(min(firstRetry<<min(n.failures, 16), lastRetry))
	n.failures++
}

// readAll reads the objects with a need that was obtained. It returns an error of one
// that cannot be read all the same.
func (s *resolving) readAll(need string) (failed error) {
	st := s.r.state.Load()
	if st == nil || !st.loaded {
		return nil
	}
	resolved := map[*Object]*Object{}
	s.r.unreadObjects(st.objects).Ascend("", "", func(o *Object) bool {
		if p := o.unread().pending; p == nil || p.Need != need {
			return true
		}
		object, err := s.r.readAgain(o)
		if err != nil {
			failed = err
		} else {
			resolved[o] = object
		}
		return true
	})
	s.r.replaceUnread(resolved)
	return failed
}

// adopt puts twins into the tree in place of the unread objects, where those are still
// there. It is no change of the objects: the revision stays, and there is no event.
func (r *Resource) replaceUnread(resolved map[*Object]*Object) {
	if len(resolved) == 0 {
		return
	}
	r.write.Lock()
	defer r.write.Unlock()
	st := r.state.Load()
	if st == nil || !st.loaded {
		return
	}
	next := new(state)
	*next = *st
	edit := st.objects.Edit()
	for o, twin := range resolved {
		if now, ok := edit.Get(o.Key); ok && now == o {
			edit.Put(twin.Key, twin)
			next.bytes += twin.memoryBytes() - o.memoryBytes()
		}
	}
	next.objects = edit.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Store(next)
}
