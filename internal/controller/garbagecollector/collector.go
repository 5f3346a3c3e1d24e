// Package garbagecollector deletes objects whose owners are gone, as the garbage collector of kube-controller-manager
// does (https://kubernetes.io/docs/concepts/architecture/garbage-collection/).
//
// An object names its owners in metadata.ownerReferences. The collector follows the metadata of all objects, which it
// reads from stored bytes, and keeps a graph of them (graph.go). Changes of the graph put objects into two queues:
//
//   - objects that may have to be deleted, because an owner is gone or waits for the deletion of its dependents
//     (check.go);
//   - objects that are deleted with the policy Orphan. The collector removes the owner references to such an object from
//     its dependents, so that these stay (orphan.go).
//
// The graph alone never causes a deletion. The collector first reads the owners that an object names, and deletes the
// object only if it has not changed since it was read. If it cannot find out whether an owner exists, because its kind
// is not known or its server does not answer, it tries again later.
//
// An example: ReplicaSet r owns pods p and q. r is deleted with the policy Background, so it is gone at once. The graph
// puts p and q into the first queue. For p, the collector reads the owner r, which does not exist, and deletes p. With
// the policy Foreground, r stays with the finalizer foregroundDeletion. p and q are deleted because their owner waits
// for that. When they are gone, r is put into the queue, and the collector removes its finalizer.
package garbagecollector

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

const (
	// parallel is the number of objects of each queue that are processed concurrently.
	parallel = 20
	// After an error, an object is worked on again after firstDelay. The delay doubles up to maxDelay.
	firstDelay, maxDelay = 5 * time.Millisecond, time.Minute
)

// Objects reads and changes objects. Local implements it for the resources of this server; another implementation sends
// requests to extension API servers.
type Objects interface {
	GetMetadata(ctx context.Context, ref client.Ref) (client.Metadata, error)
	ListMetadata(ctx context.Context, r client.ListRequest, yield func(client.Metadata) bool) (int64, error)
	WatchMetadata(ctx context.Context, r client.WatchRequest) (Watch, error)
	Update(ctx context.Context, r client.UpdateRequest) (registry.Object, error)
	Delete(ctx context.Context, r client.DeleteRequest) (gone bool, err error)
}

// Watch delivers changes. *client.Watch implements it.
type Watch interface {
	NextMetadata(ctx context.Context, tick <-chan time.Time) (changes []client.MetadataChange, revision int64, err error)
	Close()
}

// Local implements Objects for the resources of this server.
type Local struct{ *client.Client }

// WatchMetadata watches the objects of a resource.
func (l Local) WatchMetadata(ctx context.Context, r client.WatchRequest) (Watch, error) {
	return l.Watch(ctx, r)
}

// Resources lists the served resources. *discovery.Handler implements it.
type Resources interface {
	Preferred() (resources []discovery.Resource, stale []schema.GroupVersion)
	OfKind(schema.GroupVersionKind) (discovery.Resource, bool)
}

// Options are the dependencies of a Collector.
type Options struct {
	// Client writes events.
	Client *client.Client
	// Local accesses the objects of this server, Remote the objects of extension API servers.
	Local, Remote Objects
	Directory     *directory.Directory
	Resources     Resources
	// RemoteChanged returns a channel that is closed when the resources of extension API servers change the next time.
	RemoteChanged func() <-chan struct{}
	// Ready waits until Resources has the custom resources that were defined before the start.
	Ready func(context.Context) error
	// Revision returns the revision of the latest write.
	Revision func(context.Context) (int64, error)
	Log      *slog.Logger
	// Now is the time of events.
	Now func() time.Time
	// Metrics counts what happens in the queues.
	Metrics workqueue.MetricsProvider
	// Activity has the work of the controller; nil records nothing.
	Activity *activity.Part
}

// queue is a queue of objects. *workers.Queue implements it.
type queue interface {
	Add(types.UID)
	AddAfter(types.UID, time.Duration)
	Run(ctx context.Context, n int, handle func(context.Context, types.UID) error)
	Close()
}

// Collector collects garbage. Its state lasts for one call of Run.
type Collector struct {
	Options
	ctx   context.Context // ends with Run
	tasks sync.WaitGroup
	graph *graph
	// check and orphan are the queues, see the comment of the package. Namespaces take turns in them.
	check, orphan queue
	// listed is closed when all objects are in the graph.
	listed  chan struct{}
	reports *reporter
	// settle is awaitLatest, except in tests.
	settle func(context.Context) error
	lists  atomic.Uint32 // number of lists of all monitors

	mu       sync.Mutex // guards what follows
	monitors map[schema.GroupVersionResource]*monitor
}

// Run collects garbage until ctx ends.
func Run(ctx context.Context, o Options) error {
	if err := o.Ready(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	c := newCollector(ctx, o)
	defer c.tasks.Wait()
	defer cancel()
	c.tasks.Go(func() { c.reports.run(ctx) })
	c.tasks.Go(func() { c.work(ctx, c.check, c.checkObject) })
	c.tasks.Go(func() { c.work(ctx, c.orphan, c.orphanDependents) })
	return ignoreEnd(ctx, c.monitorAll(ctx))
}

func newCollector(ctx context.Context, o Options) *Collector {
	graph := newGraph()
	newQueue := func(name string) queue {
		return workers.Grouped(workers.Options{
			Name: name, FirstDelay: firstDelay, MaxDelay: maxDelay, Metrics: o.Metrics, Activity: o.Activity,
		}, graph.namespace)
	}
	c := &Collector{
		Options: o, ctx: ctx, graph: graph, listed: make(chan struct{}),
		monitors: map[schema.GroupVersionResource]*monitor{},
		check:    newQueue("garbage_collector_attempt_to_delete"), orphan: newQueue("garbage_collector_attempt_to_orphan"),
	}
	c.reports, c.settle = newReporter(c), c.awaitLatest
	return c
}

// ignoreEnd returns err, or nil if ctx has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// objects returns how the objects of a resource are reached.
func (c *Collector) objects(remote bool) Objects {
	if remote {
		return c.Remote
	}
	return c.Local
}

// apply carries out the effects of a change of the graph.
func (c *Collector) apply(e effects) {
	for _, pending := range e.check {
		if pending.delay > 0 {
			c.check.AddAfter(pending.uid, pending.delay)
		} else {
			c.check.Add(pending.uid)
		}
	}
	for _, uid := range e.orphan {
		c.orphan.Add(uid)
	}
	for _, i := range e.invalid {
		c.reports.add(i)
	}
}

// work handles the objects of a queue until ctx ends. It begins when all objects are in the graph.
func (c *Collector) work(
	ctx context.Context, q queue, handle func(context.Context, types.UID) error,
) {
	select {
	case <-c.listed:
	case <-ctx.Done():
	}
	q.Run(ctx, parallel, func(ctx context.Context, uid types.UID) error {
		err := workers.Protect(func() error { return handle(ctx, uid) })
		if ctx.Err() != nil || errors.Is(err, errInvalidOwner) {
			return nil
		}
		if err != nil {
			c.logFailure(uid, err)
		}
		return err
	})
}

// logFailure logs why an object could not be handled. A conflict is not logged: the object has changed in the meantime.
func (c *Collector) logFailure(uid types.UID, err error) {
	level := slog.LevelWarn
	if kerrors.IsConflict(err) {
		level = slog.LevelDebug
	}
	attributes := []any{"uid", uid, "error", err}
	if o, ok := c.graph.object(uid); ok {
		attributes = append(attributes, "resource", o.resource, "namespace", o.namespace, "name", o.name)
	}
	c.Log.Log(c.ctx, level, "garbage collection of an object failed; it will be tried again", attributes...)
}

const (
	// settleTime bounds how long awaitLatest waits, and settlePause is the time between two looks.
	settleTime, settlePause = 2 * time.Second, 2 * time.Millisecond
)

// errBehind is the error of awaitLatest.
var errBehind = errors.New("the graph of owners does not have the latest changes yet")

// awaitLatest waits until the graph has every change that was made before the call. Otherwise a dependent could be
// missing that the object had when its deletion began. awaitLatest fails with errBehind after settleTime. If the
// deletion continued without such a dependent, the dependent would keep its reference to a deleted owner, and be
// deleted although it should stay. awaitLatest waits for resources that cannot be read now only until settleTime,
// and then succeeds: one such resource must not stop all deletions, and the graph still has its earlier objects.
func (c *Collector) awaitLatest(ctx context.Context) error {
	revision, err := c.Revision(ctx)
	if err != nil {
		return err
	}
	c.resync()
	for end := time.Now().Add(settleTime); ; {
		behind, failing := c.isBehind(revision)
		switch late := !time.Now().Before(end); {
		case !behind && !failing:
			return nil
		case late && behind:
			return errBehind
		case late:
			c.Log.Warn("garbage collection goes on without the latest changes of resources that cannot be read")
			return nil
		}
		if !workers.Pause(ctx, settlePause) {
			return ctx.Err()
		}
	}
}

// isBehind reports whether the graph lacks changes up to a revision. behind means that changes of a resource that
// is followed are missing, failing that changes of a resource that cannot be read are missing. isBehind makes the
// monitors that lack changes update their revision. It ignores the monitors of extension API servers, because
// these have revisions of their own.
func (c *Collector) isBehind(revision int64) (behind, failing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.monitors {
		if m.resource.Remote || m.revision.Load() >= revision {
			continue
		}
		if m.failing.Load() {
			failing = true
			continue
		}
		behind = true
		select {
		case m.tick <- time.Time{}:
		default:
		}
	}
	return behind, failing
}
