// Package directory has every resource that the server serves, by group, version and resource: the
// built-in ones, those of CustomResourceDefinitions and those of API services. Whoever serves resources
// puts them in; the router, discovery, the in-process client and controllers find them here, and are told
// of changes.
package directory

import (
	"context"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/registry"
)

// Source is who serves a resource.
type Source int

const (
	// BuiltIn resources are part of the program.
	BuiltIn Source = iota
	// Custom resources are those of CustomResourceDefinitions.
	Custom
)

// A Resource is one version of a resource.
type Resource struct {
	GVR    schema.GroupVersionResource
	Source Source
	// Handler serves requests about it.
	Handler http.Handler
	// Open returns the resource for reads and writes inside the server. Until done is called the caller
	// uses it: what takes its place waits for that where it has to. Nil where it cannot be opened.
	Open func(ctx context.Context) (served *registry.Served, done func(), err error)
	// Describe lists the resource and its subresources as discovery shows them.
	Describe func() []metav1.APIResource
	// Announced resources are not served yet: discovery shows their version alone.
	Announced bool
}

// Directory has the resources. Its methods may be called concurrently.
type Directory struct {
	served sync.Map // schema.GroupVersionResource -> *Resource, without those that are announced

	mu sync.RWMutex // guards what follows
	// groups has all resources by group, version and name.
	groups   map[string]map[string]map[string]*Resource
	watchers map[*Watcher]bool
}

// New returns an empty Directory.
func New() *Directory {
	return &Directory{groups: map[string]map[string]map[string]*Resource{}, watchers: map[*Watcher]bool{}}
}

// Find returns a resource that is served, nil if there is none of that name.
func (d *Directory) Find(gvr schema.GroupVersionResource) *Resource {
	found, ok := d.served.Load(gvr)
	if !ok {
		return nil
	}
	return found.(*Resource)
}

// Has says whether a group has resources of a source.
func (d *Directory) Has(group string, source Source) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, resources := range d.groups[group] {
		for _, r := range resources {
			if r.Source == source {
				return true
			}
		}
	}
	return false
}

// Put adds a resource, or replaces the one of its name. A built-in one is never replaced by another.
func (d *Directory) Put(r *Resource) {
	d.mu.Lock()
	defer d.mu.Unlock()
	versions := d.groups[r.GVR.Group]
	if versions == nil {
		versions = map[string]map[string]*Resource{}
		d.groups[r.GVR.Group] = versions
	}
	resources := versions[r.GVR.Version]
	if resources == nil {
		resources = map[string]*Resource{}
		versions[r.GVR.Version] = resources
	}
	if old := resources[r.GVR.Resource]; old != nil && old.Source < r.Source {
		return
	}
	resources[r.GVR.Resource] = r
	if r.Announced {
		d.served.Delete(r.GVR)
	} else {
		d.served.Store(r.GVR, r)
	}
	d.tell(r.GVR.GroupVersion())
}

// Remove takes a resource of a source out.
func (d *Directory) Remove(gvr schema.GroupVersionResource, source Source) {
	d.mu.Lock()
	defer d.mu.Unlock()
	versions := d.groups[gvr.Group]
	if old := versions[gvr.Version][gvr.Resource]; old == nil || old.Source != source {
		return
	}
	d.served.Delete(gvr)
	delete(versions[gvr.Version], gvr.Resource)
	if len(versions[gvr.Version]) == 0 {
		delete(versions, gvr.Version)
	}
	if len(versions) == 0 {
		delete(d.groups, gvr.Group)
	}
	d.tell(gvr.GroupVersion())
}

// Group returns the resources of a group by version and name. The caller owns the maps.
func (d *Directory) Group(name string) map[string]map[string]*Resource {
	d.mu.RLock()
	defer d.mu.RUnlock()
	out := make(map[string]map[string]*Resource, len(d.groups[name]))
	for version, resources := range d.groups[name] {
		copied := make(map[string]*Resource, len(resources))
		for name, r := range resources {
			copied[name] = r
		}
		out[version] = copied
	}
	return out
}

// Each calls yield with every resource that is served, in no order, until it returns false.
func (d *Directory) Each(yield func(*Resource) bool) {
	d.served.Range(func(_, r any) bool { return yield(r.(*Resource)) })
}

// tell tells the watchers of a change. mu is held.
func (d *Directory) tell(gv schema.GroupVersion) {
	served := len(d.groups[gv.Group][gv.Version]) > 0
	for w := range d.watchers {
		w.add(gv, served)
	}
}

// Watch returns a Watcher that is told of every change from now on, and first of all there is.
func (d *Directory) Watch() *Watcher {
	w := &Watcher{d: d, changed: map[schema.GroupVersion]bool{}, ready: make(chan struct{}, 1)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watchers[w] = true
	for group, versions := range d.groups {
		for version := range versions {
			w.add(schema.GroupVersion{Group: group, Version: version}, true)
		}
	}
	return w
}

// A Watcher collects the versions of groups whose resources changed.
type Watcher struct {
	d  *Directory
	mu sync.Mutex // guards changed
	// changed says of a version whether it has resources now.
	changed map[schema.GroupVersion]bool
	ready   chan struct{} // has room for one
}

func (w *Watcher) add(gv schema.GroupVersion, served bool) {
	w.mu.Lock()
	w.changed[gv] = served
	w.mu.Unlock()
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// Take returns what changed since the last call, and whether each version has resources now. It does not
// wait.
func (w *Watcher) Take() map[schema.GroupVersion]bool {
	select {
	case <-w.ready:
	default:
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := w.changed
	w.changed = map[schema.GroupVersion]bool{}
	return changed
}

// Next waits until something changed, or ctx ends, and returns it as Take does.
func (w *Watcher) Next(ctx context.Context) (map[schema.GroupVersion]bool, error) {
	for {
		select {
		case <-w.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		w.mu.Lock()
		changed := w.changed
		w.changed = map[schema.GroupVersion]bool{}
		w.mu.Unlock()
		if len(changed) > 0 {
			return changed, nil
		}
	}
}

// Close ends the Watcher.
func (w *Watcher) Close() {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	delete(w.d.watchers, w)
}

// PutBuiltIn adds all resources of a registry, in all their versions.
func (d *Directory) PutBuiltIn(g *registry.Registry, handler http.Handler) {
	for _, r := range g.Resources() {
		for i := range r.Kind.Versions {
			served := registry.NewServed(r, &r.Kind.Versions[i])
			d.Put(&Resource{
				GVR: served.GVR, Source: BuiltIn, Handler: handler,
				Open: func(context.Context) (*registry.Served, func(), error) { return served, func() {}, nil },
			})
		}
	}
}
