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
	// maxObtaining limits how many needs of a resource are obtained concurrently. A need is something from another
	// program that unread objects require, such as a key.
	maxObtaining = 4
	// obtainTimeout bounds one attempt of the resolver.
	obtainTimeout = 10 * time.Second
	// A failed attempt is repeated after a pause, which doubles from firstRetry to lastRetry.
	firstRetry, lastRetry = 50 * time.Millisecond, 10 * time.Second
	// resolverPause is the shortest time between two passes over the unread objects.
	resolverPause = 10 * time.Millisecond
)

// resolver makes the unread objects of a resource readable: at once for a request (readable), and in a goroutine
// that runs while there are unread objects. It uses only the first four fields to access the resource. mu may be
// locked while Resource.write is held, but not the other way round.
type resolver struct {
	decoder    *decoder
	background *background
	unread     func() index.Tree[*Object] // the unread objects that are loaded now
	replace    func(map[*Object]*Object)  // replaces unread objects with readable ones

	mu      sync.Mutex    // guards what follows
	running bool          // the goroutine runs
	woken   chan struct{} // made by the first start; capacity 1
	all     bool          // try all unread objects, including those whose error has no known need
}

// start starts or wakes the goroutine if there are unread objects. It must be called after each change of the objects.
func (r *resolver) start() {
	if r.unread().Len() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		r.signal()
		return
	}
	if r.woken == nil {
		r.woken = make(chan struct{}, 1)
	}
	r.running = r.background.spawn(r.resolve)
}

// stop marks the goroutine as ended. It returns false, and the goroutine must continue, if there are unread
// objects again.
func (r *resolver) stop() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unread().Len() > 0 {
		return false
	}
	r.running = false
	return true
}

// wake makes the resolver, if it runs, try the unread objects again. If all is set, it also tries objects that
// wait for their next attempt.
func (r *resolver) wake(all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = r.all || all
	r.signal()
}

// signal ends the pause of the goroutine, if it runs. The caller holds mu.
func (r *resolver) signal() {
	select {
	case r.woken <- struct{}{}: // woken is nil, and this case never chosen, before the first start
	default:
	}
}

// takeAll returns and resets all.
func (r *resolver) takeAll() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = false
	return all
}

// readable implements Resource.Readable.
func (r *resolver) readable(ctx context.Context, o *Object) (*Object, error) {
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
	r.wake(true) // others may be readable as well
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
func (r *resolver) resolve() {
	run := resolving{resolver: r, needs: map[string]*need{}, results: make(chan obtained, maxObtaining)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, more := run.step(time.Now(), r.takeAll())
		if !more && r.stop() {
			return
		}
		if !r.background.pause(resolverPause) {
			return
		}
		timer.Reset(wait)
		select {
		case <-r.background.ctx.Done():
			return
		case <-r.woken:
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
func (r *resolving) step(now time.Time, all bool) (wait time.Duration, more bool) {
	if all {
		for _, n := range r.needs {
			n.failures, n.next = 0, time.Time{}
		}
	}
	wait = math.MaxInt64
	resolved := map[*Object]*Object{}
	r.unread().Ascend("", "", func(o *Object) bool {
		more = true
		u := o.unread()
		switch object := u.resolved.Load(); {
		case object != nil:
			resolved[o] = object
		case u.pending != nil:
			wait = min(wait, r.obtain(u.pending, now))
		case all:
			if object, err := r.decoder.readAgain(o); err == nil {
				resolved[o] = object
			}
		}
		return true
	})
	r.replace(resolved)
	return wait, more
}

// obtain starts an attempt if it is due, and returns how long to wait for the next one.
func (r *resolving) obtain(p *storage.PendingError, now time.Time) time.Duration {
	n := r.needs[p.Need]
	if n == nil {
		n = &need{}
		r.needs[p.Need] = n
	}
	switch wait := n.next.Sub(now); {
	case n.obtaining, r.obtaining == maxObtaining:
		return math.MaxInt64 // the end of an attempt wakes the resolver
	case wait > 0:
		return wait
	}
	n.obtaining = true
	r.obtaining++
	r.background.spawn(func() {
		ctx, cancel := context.WithTimeout(r.background.ctx, obtainTimeout)
		defer cancel()
		r.results <- obtained{p.Need, p.Obtain(ctx)}
	})
	return math.MaxInt64
}

// finish records the result of an attempt, and reads the objects that became readable.
func (r *resolving) finish(result obtained, now time.Time) {
	n := r.needs[result.need]
	n.obtaining = false
	r.obtaining--
	err := result.err
	if err == nil {
		err = r.readAll(result.need)
	}
	log := r.decoder.logger
	switch {
	case err == nil:
		if n.failures > 0 {
			log.Info("cache: objects can be read again", "resource", r.decoder.config.Resource, "needed", result.need)
		}
		delete(r.needs, result.need)
		return
	case n.failures == 0:
		log.Error("cache: objects cannot be read yet",
			"resource", r.decoder.config.Resource, "needed", result.need, "error", err)
	}
	n.next = now.Add(min(firstRetry<<min(n.failures, 16), lastRetry))
	n.failures++
}

// readAll reads the objects whose need was obtained. It returns an error if one of them still cannot be read.
func (r *resolving) readAll(need string) (failed error) {
	resolved := map[*Object]*Object{}
	r.unread().Ascend("", "", func(o *Object) bool {
		if p := o.unread().pending; p == nil || p.Need != need {
			return true
		}
		object, err := r.decoder.readAgain(o)
		if err != nil {
			failed = err
		} else {
			resolved[o] = object
		}
		return true
	})
	r.replace(resolved)
	return failed
}
