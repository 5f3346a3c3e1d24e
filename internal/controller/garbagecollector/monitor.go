package garbagecollector

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/storage"
)

const (
	// resyncPause is the shortest time between a change of the resources and the reading of their list, because
	// many resources may change at once. Reading thousands of resources takes long. The delay is therefore at
	// least resyncRest times as long as the last reading took.
	resyncPause = 100 * time.Millisecond
	resyncRest  = 10
	// syncTime limits the time that the collector waits for the first lists, as in kube-controller-manager.
	syncTime = 30 * time.Second
	// retryAfter is the time until a resource is listed again after an error. For a resource of an extension API
	// server, it doubles with each further error, up to maxRetryAfter. It is reset when a watch has lasted for
	// maxRetryAfter.
	retryAfter    = time.Second
	maxRetryAfter = time.Minute
)

// monitor brings the objects of one resource into the graph.
type monitor struct {
	c         *Collector
	resource  discovery.Resource
	stop      context.CancelFunc
	locations map[string]*location // by namespace; used by the monitor's goroutine alone
	list      uint32               // number of the last list, see node.list
	// synced is closed when the objects were listed for the first time, or cannot be listed.
	synced chan struct{}
	once   sync.Once // closes synced
	// tick makes the monitor update revision.
	tick chan time.Time
	// revision is the revision up to which all changes are in the graph.
	revision atomic.Int64
	// failing is true after a list has failed, until one succeeds.
	failing atomic.Bool
	// watching is when the current watch began, or zero if there is none. Only the monitor's goroutine uses it.
	watching time.Time
}

// ignored are resources whose objects are not in the graph, as in kube-controller-manager. They have many objects,
// which expire by themselves.
var ignored = []schema.GroupResource{{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}}

// collected reports whether the objects of a resource are in the graph.
func collected(r discovery.Resource) bool {
	for _, verb := range []string{"delete", "list", "watch"} {
		if !slices.Contains(r.Verbs, verb) {
			return false
		}
	}
	return !slices.Contains(ignored, r.GroupResource())
}

// monitorAll runs a monitor for each resource. It follows the resources until ctx ends.
func (c *Collector) monitorAll(ctx context.Context) error {
	changes := c.Directory.Watch()
	defer changes.Close()
	c.Activity.Pending(changes.Pending)
	for first := true; ; first = false {
		changes.Take()
		remote := c.RemoteChanged()
		begin := time.Now()
		started := c.resync()
		pause := max(resyncPause, resyncRest*time.Since(begin))
		if first {
			if err := c.awaitSynced(ctx, started); err != nil {
				return err
			}
			c.apply(c.graph.listed())
			close(c.listed)
			c.Activity.Started()
		}
		if c.awaitResources(ctx, changes, remote); ctx.Err() != nil {
			return nil
		}
		workers.Pause(ctx, pause)
	}
}

// awaitResources waits until the resources of this server or of extension API servers have changed.
func (c *Collector) awaitResources(ctx context.Context, local *directory.Watcher, remote <-chan struct{}) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-remote:
			cancel()
		case <-waiting.Done():
		}
	}()
	_, _ = local.Next(waiting) // it fails only when waiting ends
}

// awaitSynced waits until the objects of each resource were listed or cannot be listed, at most for syncTime.
// After that the collector begins, as in kube-controller-manager, even if a server does not answer. This is safe,
// because it deletes nothing without reading the owners.
func (c *Collector) awaitSynced(ctx context.Context, monitors []*monitor) error {
	late := time.NewTimer(syncTime)
	defer late.Stop()
	for _, m := range monitors {
		select {
		case <-m.synced:
		case <-late.C:
			c.Log.Warn("garbage collection begins although not all resources were listed",
				"resource", m.resource.GroupVersionResource)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// resync starts monitors for resources that have none, and stops the monitors of resources that are gone. The nodes of
// the latter stay in the graph, because their objects may still exist. It returns the monitors that it has started.
func (c *Collector) resync() (started []*monitor) {
	resources, stale := c.Resources.Preferred()
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[schema.GroupVersionResource]bool{}
	for _, r := range resources {
		if !collected(r) {
			continue
		}
		found[r.GroupVersionResource] = true
		if c.monitors[r.GroupVersionResource] != nil {
			continue
		}
		m := &monitor{
			c: c, resource: r, locations: map[string]*location{}, synced: make(chan struct{}), tick: make(chan time.Time, 1),
		}
		var running context.Context
		running, m.stop = context.WithCancel(c.ctx)
		c.monitors[r.GroupVersionResource] = m
		started = append(started, m)
		c.Activity.Add(1) // until isSynced
		c.tasks.Go(func() { m.run(running) })
	}
	for gvr, m := range c.monitors {
		if !found[gvr] && !slices.Contains(stale, gvr.GroupVersion()) {
			m.stop()
			delete(c.monitors, gvr)
		}
	}
	return started
}

// run brings objects into the graph until ctx ends.
func (m *monitor) run(ctx context.Context) {
	defer m.isSynced()
	delay := retryAfter
	for ctx.Err() == nil {
		m.watching = time.Time{}
		err := workers.Protect(func() error { return m.follow(ctx) })
		if ctx.Err() != nil || errors.Is(err, storage.ErrClosed) {
			return
		}
		m.c.Log.Debug("cannot follow the objects of a resource for garbage collection; will try again",
			"resource", m.resource.GroupVersionResource, "error", err)
		if !m.watching.IsZero() && time.Since(m.watching) >= maxRetryAfter {
			delay = retryAfter
		}
		workers.Pause(ctx, delay)
		if m.resource.Remote { // its lists may be large and fail each time
			delay = min(2*delay, maxRetryAfter)
		}
	}
}

func (m *monitor) isSynced() {
	m.once.Do(func() {
		close(m.synced)
		m.c.Activity.Add(-1)
	})
}

// follow lists the objects and follows their changes until there is an error.
func (m *monitor) follow(ctx context.Context) error {
	objects := m.c.objects(m.resource.Remote)
	m.list = m.c.lists.Add(1)
	from, err := objects.ListMetadata(ctx, client.ListRequest{Resource: m.resource.GroupVersionResource},
		func(o client.Metadata) bool {
			m.set(o)
			return ctx.Err() == nil
		})
	if err != nil || ctx.Err() != nil {
		m.failing.Store(true)
		m.isSynced()
		return err
	}
	m.failing.Store(false)
	m.c.apply(m.c.graph.sweep(m.resource.GroupResource(), m.list))
	m.revision.Store(from)
	m.isSynced()
	w, err := objects.WatchMetadata(ctx, client.WatchRequest{Resource: m.resource.GroupVersionResource, From: from})
	if err != nil {
		return err
	}
	defer w.Close()
	m.watching = time.Now()
	for {
		changes, revision, err := w.NextMetadata(ctx, m.tick)
		if err != nil {
			return err
		}
		for i := range changes {
			if changes[i].Type == watch.Deleted {
				m.c.apply(m.c.graph.remove(m.resource.GroupResource(), changes[i].UID))
			} else {
				m.set(changes[i].Metadata)
			}
		}
		m.revision.Store(revision)
	}
}

// set brings the state of an object into the graph.
func (m *monitor) set(o client.Metadata) {
	if o.UID == "" {
		return
	}
	p := m.locations[o.Namespace]
	if p == nil {
		apiVersion, kind := m.resource.GroupVersion().String(), m.resource.Kind
		p = &location{
			resource: m.resource.GroupVersionResource, apiVersion: apiVersion, kind: kind,
			namespace: strings.Clone(o.Namespace), remote: m.resource.Remote,
		}
		m.locations[p.namespace] = p
	}
	m.c.apply(m.c.graph.set(p, o, m.list))
}
