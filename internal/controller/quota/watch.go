package quota

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/quota"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// quotaKey names a quota.
type quotaKey struct{ namespace, name string }

// watched is the state of a quota.
type watched struct {
	hard corev1.ResourceList
	// resources are the resources whose objects count for the quota.
	resources []schema.GroupResource
}

// planned is the plan to count a quota at a time.
type planned struct {
	at time.Time
	// again means that the quota is counted a second time after settleTime.
	again bool
}

// following is a resource whose changes are followed.
type following struct {
	quotas int // the number of quotas that need it
	end    context.CancelFunc
}

// watcher finds out which quotas have to be counted.
type watcher struct {
	*Controller
	ctx   context.Context // ends with the watcher
	tasks sync.WaitGroup

	mu     sync.Mutex // guards what follows
	quotas map[string]map[string]*watched
	plan   map[quotaKey]planned
	// counting is the number of quotas that are being counted. They are not in plan.
	counting int
	// following has the resources whose changes are followed.
	following map[schema.GroupResource]*following
	changed   chan struct{} // capacity 1; receives when plan has changed
}

// watch follows the quotas, and the objects that count for them, until there is an error.
func (c *Controller) watch(ctx context.Context) error {
	r := c.Registry.Resource(resourceQuotas().GroupResource())
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{
		Controller: c, ctx: ctx, quotas: map[string]map[string]*watched{}, plan: map[quotaKey]planned{},
		following: map[schema.GroupResource]*following{}, changed: make(chan struct{}, 1),
	}
	defer c.Activity.Set(0) // after w.tasks.Wait
	defer w.tasks.Wait()
	defer cancel()
	cursor, err := workers.Begin(ctx, r, func(o *cache.Object) error {
		w.set(r, o)
		return nil
	})
	if err != nil {
		return err
	}
	w.tasks.Go(w.work)
	c.Activity.Started()
	return workers.Follow(ctx, cursor, func(e *cache.Event) error {
		if e.Object == nil {
			w.remove(quotaKey{e.Prev.Namespace, e.Prev.Name})
		} else {
			w.set(r, e.Object)
		}
		return nil
	})
}

// set adds or updates a quota. If its limits are new, set schedules a count.
func (w *watcher) set(r *registry.Resource, o *cache.Object) {
	obj, err := r.Reader.Readable(w.ctx, o)
	var decoded registry.Object
	if err == nil {
		decoded, err = r.Decoder.Decode(w.ctx, obj)
	}
	if err != nil {
		w.Log.Error("a resource quota cannot be read", "namespace", o.Namespace, "name", o.Name, "error", err)
		return
	}
	q := decoded.(*corev1.ResourceQuota)
	w.mu.Lock()
	defer w.mu.Unlock()
	in := w.quotas[q.Namespace]
	if in == nil {
		in = map[string]*watched{}
		w.quotas[q.Namespace] = in
	}
	if known := in[q.Name]; known != nil && quota.Equal(known.hard, q.Spec.Hard) {
		return
	}
	before := in[q.Name]
	in[q.Name] = &watched{q.Spec.Hard, w.concerned(q.Spec.Hard)}
	w.use(in[q.Name].resources)
	if before != nil {
		w.release(before.resources)
	}
	w.schedule(quotaKey{q.Namespace, q.Name}, planned{at: time.Now(), again: true})
}

func (w *watcher) remove(key quotaKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.quotas[key.namespace][key.name]; known != nil {
		w.release(known.resources)
	}
	delete(w.quotas[key.namespace], key.name)
	if len(w.quotas[key.namespace]) == 0 {
		delete(w.quotas, key.namespace)
	}
	delete(w.plan, key)
	w.noteActivity()
}

// noteActivity reports how many quotas have to be counted. mu is held.
func (w *watcher) noteActivity() { w.Activity.Set(len(w.plan) + w.counting) }

// concerned returns the resources whose objects count for a quota with these limits.
func (w *watcher) concerned(hard corev1.ResourceList) []schema.GroupResource {
	return slices.DeleteFunc(quota.Resources(hard), func(r schema.GroupResource) bool {
		e := quota.New(r, w.Registry)
		if e == nil {
			return true
		}
		names, err := e.Tracked(w.ctx, hard)
		return err == nil && len(names) == 0
	})
}

// use notes that a quota needs the changes of resources. A resource is followed as long as a quota needs it. mu is
// held.
func (w *watcher) use(resources []schema.GroupResource) {
	for _, r := range resources {
		f := w.following[r]
		if f == nil {
			ctx, cancel := context.WithCancel(w.ctx)
			f = &following{end: cancel}
			w.following[r] = f
			w.tasks.Go(func() { w.followObjects(ctx, r) })
		}
		f.quotas++
	}
}

// release is the reverse of use. mu is held.
func (w *watcher) release(resources []schema.GroupResource) {
	for _, r := range resources {
		f := w.following[r]
		if f.quotas--; f.quotas == 0 {
			f.end()
			delete(w.following, r)
		}
	}
}

// schedule plans a count of a quota. If one is planned already, the earlier time counts. mu is held.
func (w *watcher) schedule(key quotaKey, p planned) {
	if before, ok := w.plan[key]; ok {
		p.again = p.again || before.again
		if before.at.Before(p.at) {
			p.at = before.at
		}
	}
	w.plan[key] = p
	w.noteActivity()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// scheduleFor queues a new count of each quota in a namespace that limits objects of resource r. The namespace ""
// means all namespaces.
func (w *watcher) scheduleFor(r schema.GroupResource, namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if namespace != "" {
		w.scheduleIn(r, namespace)
		return
	}
	for namespace := range w.quotas {
		w.scheduleIn(r, namespace)
	}
}

// scheduleIn does the work of scheduleFor for one namespace. mu is held.
func (w *watcher) scheduleIn(r schema.GroupResource, namespace string) {
	for name, q := range w.quotas[namespace] {
		if slices.Contains(q.resources, r) {
			w.schedule(quotaKey{namespace, name}, planned{at: time.Now()})
		}
	}
}

// counts reports whether objects of a resource count for a quota of the namespace.
func (w *watcher) counts(r schema.GroupResource, namespace string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.quotas[namespace] {
		if slices.Contains(q.resources, r) {
			return true
		}
	}
	return false
}

// followObjects schedules counts of quotas when objects of a resource use less than before.
func (w *watcher) followObjects(ctx context.Context, r schema.GroupResource) {
	for ctx.Err() == nil {
		if err := w.watchObjects(ctx, r); ctx.Err() == nil {
			if err != nil && !errors.Is(err, storage.ErrClosed) {
				w.Log.Warn("cannot watch objects that count for resource quotas; will start again",
					"resource", r, "error", err)
			}
			workers.Pause(ctx, workers.RetryAfter)
		}
	}
}

// watchObjects watches the objects until there is an error. A resource that is not served is not an error.
func (w *watcher) watchObjects(ctx context.Context, r schema.GroupResource) error {
	served, done, err := w.open(ctx, r)
	if err != nil || served == nil {
		return err
	}
	done()
	revision, err := served.Resource.Reader.CurrentRevision(ctx)
	if err != nil {
		return err
	}
	cursor, err := served.Resource.Reader.Watch(ctx, revision, cache.Interest{})
	if err != nil {
		return err
	}
	// Objects may have changed while the watch was not running.
	w.scheduleFor(r, "")
	e := quota.New(r, w.Registry)
	return workers.Follow(ctx, cursor, func(event *cache.Event) error {
		w.objectChanged(ctx, served, e, event)
		return nil
	})
}

// objectChanged schedules counts of the quotas of a namespace if a change makes an object use less, or moves it
// into other scopes.
func (w *watcher) objectChanged(
	ctx context.Context, served *registry.Served, e *quota.Evaluator, event *cache.Event,
) {
	switch {
	case event.Prev == nil:
		return // the admission plug-in has charged the new object
	case !w.counts(e.Resource, event.Prev.Namespace):
		return
	case event.Object == nil:
		w.scheduleFor(e.Resource, event.Prev.Namespace)
		return
	case e.OnlyCounts():
		return
	}
	was, err := decode(ctx, served, event.Prev)
	if err != nil {
		return // the objects are read again in the next count
	}
	is, err := decode(ctx, served, event.Object)
	if err != nil {
		return
	}
	used, err := e.Usage(ctx, was)
	if err != nil {
		return
	}
	uses, err := e.Usage(ctx, is)
	if err == nil && !quota.Equal(used, uses) || e.ScopesChanged(was, is) {
		w.scheduleFor(e.Resource, event.Object.Namespace)
	}
}

// work counts the quotas when they are due.
func (w *watcher) work() {
	recount := time.NewTicker(recountEvery)
	defer recount.Stop()
	for {
		var due <-chan time.Time
		if at, ok := w.next(); ok {
			due = time.After(time.Until(at))
		}
		select {
		case <-w.ctx.Done():
			return
		case <-w.changed:
		case <-recount.C:
			w.scheduleAll()
		case <-due:
			w.countDue()
		}
	}
}

// next returns the earliest time at which a quota has to be counted.
func (w *watcher) next() (at time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.plan {
		if !ok || p.at.Before(at) {
			at, ok = p.at, true
		}
	}
	return at, ok
}

func (w *watcher) scheduleAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for namespace, quotas := range w.quotas {
		for name := range quotas {
			w.schedule(quotaKey{namespace, name}, planned{at: time.Now()})
		}
	}
}

// countDue counts the quotas that are due.
func (w *watcher) countDue() {
	now := time.Now()
	w.mu.Lock()
	due := map[quotaKey]planned{}
	for key, p := range w.plan {
		if !p.at.After(now) {
			due[key] = p
			delete(w.plan, key)
		}
	}
	w.counting = len(due)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.counting = 0
		w.noteActivity()
	}()
	for key, p := range due {
		err := w.count(w.ctx, key)
		if w.ctx.Err() != nil {
			return
		}
		later := planned{at: time.Now().Add(settleTime)}
		if err != nil {
			w.Log.Warn("the usage of a resource quota cannot be counted; will try again",
				"namespace", key.namespace, "name", key.name, "error", err)
			later = planned{at: time.Now().Add(workers.RetryAfter), again: p.again}
		}
		if err != nil || p.again {
			w.mu.Lock()
			if w.quotas[key.namespace][key.name] != nil {
				w.schedule(key, later)
			}
			w.mu.Unlock()
		}
	}
}

func ignoreNotFound(err error) error {
	if kerrors.IsNotFound(err) {
		return nil
	}
	return err
}
