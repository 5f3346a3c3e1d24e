package cache

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
)

// If a stored value cannot be read, most often because the key with which it is encrypted is not available, the cache
// stores an unread object: the stored bytes and the error. Other objects never wait for it. It is read again in two
// ways:
//
//   - A request calls Resource.Readable, which waits for the key.
//   - The resolver of the resource, a goroutine that runs while the resource has unread objects, obtains what they
//     need, with growing pauses between attempts.
//
// The readable object is stored in unread.resolved, for events and snapshots that refer to the unread object. The
// resolver also replaces the unread object in the tree, where an additional index lists the unread objects.

const (
	// maxObtaining limits how many needs of a resource are obtained concurrently.
	maxObtaining = 4
	// obtainTimeout bounds one attempt of the resolver.
	obtainTimeout = 10 * time.Second
	// A failed attempt is repeated after a pause, which doubles from firstRetry to lastRetry.
	firstRetry, lastRetry = 50 * time.Millisecond, 10 * time.Second
	// resolverPause is the shortest time between two passes over the unread objects.
	resolverPause = 10 * time.Millisecond
)

// unread is the stored value of an object that could not be read. Only resolved changes.
type unread struct {
	value    []byte                 // as stored
	err      error                  // why
	pending  *storage.PendingError  // what it needs; nil if that is not known
	resolved atomic.Pointer[Object] // the readable object, after it was read
}

// unread returns the stored value of an unread object, or nil for others.
func (o *Object) unread() *unread {
	if k := o.attached.Load(); k != nil {
		return k.unread
	}
	return nil
}

// size returns how many bytes of its value an object keeps in memory.
func (o *Object) size() int64 {
	if u := o.unread(); u != nil {
		return int64(len(u.value))
	}
	return int64(len(o.Data))
}

// Resolved returns the readable object that has replaced the unread o, or o if there is none.
func (o *Object) Resolved() *Object {
	if u := o.unread(); u != nil {
		if resolved := u.resolved.Load(); resolved != nil {
			return resolved
		}
	}
	return o
}

// Readable returns o if it is readable. If o is unread, it obtains what the codec needs, waiting until ctx ends, and
// returns the readable object. The error comes from the codec, or from obtaining what it needs.
func (r *Resource) Readable(ctx context.Context, o *Object) (*Object, error) {
	if o = o.Resolved(); o.unread() == nil {
		return o, nil
	}
	var object *Object
	err := storage.RetryPending(ctx, func() (err error) {
		object, err = r.decoder.readAgain(o)
		return err
	})
	if err != nil {
		return nil, err
	}
	r.resolver.wake(true) // others may be readable as well
	return object, nil
}

// unreadField is the value of all indexed fields of an unread object, which is not a possible text of a field. All
// indexes have it, so that the cost of an index does not depend on the number of unread objects.
const unreadField = "\x00unread"

// Unread returns how many objects of the snapshot could not be read when it was taken. They are in no index, and not in
// the encodings of chunks.
func (s Snapshot) Unread() int {
	if s.objects.All().Len() == 0 {
		return 0
	}
	return s.objects.WithField(len(s.indexes), unreadField).Len()
}

// Unread returns how many of the loaded objects are unread now.
func (r *Resource) Unread() int {
	if st := r.published.state.Load(); st != nil && st.loaded {
		return r.decoder.unreadObjects(st.objects).Len()
	}
	return 0
}

// RetryUnread makes the resolvers try all unread objects again soon, in the background, because what they need may be
// available now.
func (c *Cache) RetryUnread() {
	for _, r := range c.all() {
		r.resolver.wake(true)
	}
}

// resolver is the state of the background goroutine that resolves the unread objects of a resource.
type resolver struct {
	// running means that the goroutine runs. Guarded by Resource.write.
	running bool

	mu    sync.Mutex    // guards woken and all
	woken chan struct{} // made by the first run; capacity 1
	all   bool          // try all unread objects, including those whose error has no known need
}

// wake makes the resolver, if it runs, try the unread objects; if all is set, also those that wait for their next
// attempt.
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

// takeAll returns and resets all.
func (w *resolver) takeAll() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = false
	return all
}

// resolveUnread starts or wakes the resolver if the resource has unread objects. The caller holds write.
func (r *Resource) resolveUnread() {
	if r.Unread() == 0 {
		return
	}
	if r.resolver.running {
		r.resolver.wake(false)
		return
	}
	woken := r.resolver.begin()
	r.resolver.running = r.cache.background.spawn(func() { r.resolve(woken) })
}

// need is something that unread objects need, such as a key, and the state of obtaining it.
type need struct {
	obtaining bool
	failures  int
	next      time.Time // time of the next attempt
}

// obtained is the result of an attempt to obtain a need.
type obtained struct {
	need string
	err  error
}

// resolve runs until no object is unread or the cache is closed.
func (r *Resource) resolve(woken <-chan struct{}) {
	run := resolving{r: r, needs: map[string]*need{}, results: make(chan obtained, maxObtaining)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, more := run.step(time.Now(), r.resolver.takeAll())
		if !more && r.stopResolver() {
			return
		}
		if !r.cache.background.pause(resolverPause) {
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

// stopResolver marks the resolver as stopped. It returns false if there are unread objects again.
func (r *Resource) stopResolver() bool {
	r.write.Lock()
	defer r.write.Unlock()
	if r.Unread() > 0 {
		return false
	}
	r.resolver.running = false
	return true
}

// resolving is the state of one run of the resolver. Only its goroutine uses it, except for results.
type resolving struct {
	r         *Resource
	needs     map[string]*need
	obtaining int
	results   chan obtained // capacity maxObtaining, so that a send never blocks
}

// step reads the objects that can be read, starts the attempts that are due, and returns how long to wait for the next
// one. It returns false if no object is unread.
func (s *resolving) step(now time.Time, all bool) (wait time.Duration, more bool) {
	st := s.r.published.state.Load()
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
	s.r.decoder.unreadObjects(st.objects).Ascend("", "", func(o *Object) bool {
		more = true
		u := o.unread()
		switch object := u.resolved.Load(); {
		case object != nil:
			resolved[o] = object
		case u.pending != nil:
			wait = min(wait, s.obtain(u.pending, now))
		case all:
			if object, err := s.r.decoder.readAgain(o); err == nil {
				resolved[o] = object
			}
		}
		return true
	})
	s.r.replaceUnread(resolved)
	return wait, more
}

// obtain starts an attempt if it is due, and returns how long to wait for the next one.
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
	s.r.cache.background.spawn(func() {
		ctx, cancel := context.WithTimeout(s.r.cache.background.ctx, obtainTimeout)
		defer cancel()
		s.results <- obtained{p.Need, p.Obtain(ctx)}
	})
	return math.MaxInt64
}

// finish records the result of an attempt, and reads the objects that became readable.
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

// readAll reads the objects whose need was obtained. It returns an error if one of them still cannot be read.
func (s *resolving) readAll(need string) (failed error) {
	st := s.r.published.state.Load()
	if st == nil || !st.loaded {
		return nil
	}
	resolved := map[*Object]*Object{}
	s.r.decoder.unreadObjects(st.objects).Ascend("", "", func(o *Object) bool {
		if p := o.unread().pending; p == nil || p.Need != need {
			return true
		}
		object, err := s.r.decoder.readAgain(o)
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

// replaceUnread replaces unread objects by their readable ones, if they are still loaded.
func (r *Resource) replaceUnread(resolved map[*Object]*Object) {
	if len(resolved) == 0 {
		return
	}
	r.write.Lock()
	defer r.write.Unlock()
	if st := r.published.state.Load(); st != nil && st.loaded {
		r.published.amend(st.withReadable(resolved))
	}
}
