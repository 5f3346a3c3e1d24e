package cache

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache/index"
)

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

// resolver makes the unread objects of a resource readable: at once for a request (readable), and in a goroutine that runs
// while there are some. What it knows of the resource are the four fields at the top. mu may be locked while
// Resource.write is held, not the other way round.
type resolver struct {
	decoder    *decoder
	background *background
	unread     func() index.Tree[*Object] // the unread objects that are loaded now
	replace    func(map[*Object]*Object)  // puts readable objects in the place of unread ones

	mu      sync.Mutex    // guards what follows
	running bool          // the goroutine runs
	woken   chan struct{} // made by the first start; capacity 1
	all     bool          // try all unread objects, including those whose error has no known need
}

// start starts or wakes the goroutine if there are unread objects. It must be called after each change of the objects.
func (w *resolver) start() {
	if w.unread().Len() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running {
		w.signal()
		return
	}
	if w.woken == nil {
		w.woken = make(chan struct{}, 1)
	}
	w.running = w.background.spawn(w.resolve)
}

// stop marks the goroutine as ended. It returns false if there are unread objects again.
func (w *resolver) stop() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unread().Len() > 0 {
		return false
	}
	w.running = false
	return true
}

// wake makes the resolver, if it runs, try the unread objects; if all is set, also those that wait for their next
// attempt.
func (w *resolver) wake(all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = w.all || all
	w.signal()
}

// signal ends the pause of the goroutine, if it runs. The caller holds mu.
func (w *resolver) signal() {
	select {
	case w.woken <- struct{}{}: // never if it did not run yet
	default:
	}
}

// takeAll returns and resets all.
func (w *resolver) takeAll() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = false
	return all
}

// readable implements Resource.Readable.
func (w *resolver) readable(ctx context.Context, o *Object) (*Object, error) {
	if o = o.Resolved(); o.unread() == nil {
		return o, nil
	}
	var object *Object
	err := storage.RetryPending(ctx, func() (err error) {
		object, err = w.decoder.readAgain(o)
		return err
	})
	if err != nil {
		return nil, err
	}
	w.wake(true) // others may be readable as well
	return object, nil
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
func (w *resolver) resolve() {
	run := resolving{resolver: w, needs: map[string]*need{}, results: make(chan obtained, maxObtaining)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, more := run.step(time.Now(), w.takeAll())
		if !more && w.stop() {
			return
		}
		if !w.background.pause(resolverPause) {
			return
		}
		timer.Reset(wait)
		select {
		case <-w.background.ctx.Done():
			return
		case <-w.woken:
		case <-timer.C:
		case result := <-run.results:
			run.finish(result, time.Now())
		}
	}
}

// resolving is the state of one run of the resolver. Only its goroutine uses it, except for results.
type resolving struct {
	*resolver
	needs     map[string]*need
	obtaining int
	results   chan obtained // capacity maxObtaining, so that a send never blocks
}

// step reads the objects that can be read, starts the attempts that are due, and returns how long to wait for the next
// one. It returns false if no object is unread.
func (s *resolving) step(now time.Time, all bool) (wait time.Duration, more bool) {
	if all {
		for _, n := range s.needs {
			n.failures, n.next = 0, time.Time{}
		}
	}
	wait = math.MaxInt64
	resolved := map[*Object]*Object{}
	s.unread().Ascend("", "", func(o *Object) bool {
		more = true
		u := o.unread()
		switch object := u.resolved.Load(); {
		case object != nil:
			resolved[o] = object
		case u.pending != nil:
			wait = min(wait, s.obtain(u.pending, now))
		case all:
			if object, err := s.decoder.readAgain(o); err == nil {
				resolved[o] = object
			}
		}
		return true
	})
	s.replace(resolved)
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
	s.background.spawn(func() {
		ctx, cancel := context.WithTimeout(s.background.ctx, obtainTimeout)
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
	log := s.decoder.logger
	switch {
	case err == nil:
		if n.failures > 0 {
			log.Info("cache: objects can be read again", "resource", s.decoder.config.Resource, "needed", result.need)
		}
		delete(s.needs, result.need)
		return
	case n.failures == 0:
		log.Error("cache: objects cannot be read yet",
			"resource", s.decoder.config.Resource, "needed", result.need, "error", err)
	}
	n.next = now.Add(min(firstRetry<<min(n.failures, 16), lastRetry))
	n.failures++
}

// readAll reads the objects whose need was obtained. It returns an error if one of them still cannot be read.
func (s *resolving) readAll(need string) (failed error) {
	resolved := map[*Object]*Object{}
	s.unread().Ascend("", "", func(o *Object) bool {
		if p := o.unread().pending; p == nil || p.Need != need {
			return true
		}
		object, err := s.decoder.readAgain(o)
		if err != nil {
			failed = err
		} else {
			resolved[o] = object
		}
		return true
	})
	s.replace(resolved)
	return failed
}
