// Package directory lists every served resource by group, version and resource, built-in and custom. The servers of
// resources add them. The router, discovery, the in-process client and the controllers look resources up, and follow
// changes with a Watcher.
package directory

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Source is the origin of a resource.
type Source int

const (
	// BuiltIn resources are part of the program.
	BuiltIn Source = iota
	// Custom resources belong to a CustomResourceDefinition.
	Custom
)

// Resource is one version of a resource. It is not changed after Put.
type Resource struct {
	GVR    schema.GroupVersionResource
	Source Source
	// Handler answers requests for the resource.
	Handler http.Handler
	// Open returns the resource for reads and writes inside the server. The caller calls done when it has
	// finished, so that a definition is not replaced in the middle of a write.
	Open func(ctx context.Context) (served *registry.Served, done func(), err error)
	// Describe returns the entries of the resource and its subresources in discovery, in their order there.
	// If it is nil, or returns none, discovery shows the group and the version without the resource.
	Describe func() []metav1.APIResource
	// Announced means that the version is in discovery and has an APIService, but requests for the resource are not
	// served yet. Find does not return the resource.
	Announced bool
	// Hidden means that requests for the resource are served, but nothing lists it: it has no place in discovery and no APIService.
	Hidden bool
}

// Directory lists the resources. Its methods may be called concurrently.
type Directory struct {
	served sync.Map // schema.GroupVersionResource -> *Resource, the hidden ones too, without the announced ones
	// disabled are the built-in resources that only the server itself uses.
	disabled sync.Map // schema.GroupVersionResource -> *Resource

	mu       sync.RWMutex                    // guards what follows
	groups   map[string]map[string]resources // by group and version
	watchers map[*Watcher]bool
}

// resources are the resources of one version of a group, by name.
type resources map[string]*Resource

// New returns an empty Directory.
func New() *Directory {
	return &Directory{groups: map[string]map[string]resources{}, watchers: map[*Watcher]bool{}}
}

// Find returns a resource that is served, or nil.
func (d *Directory) Find(gvr schema.GroupVersionResource) *Resource {
	found, ok := d.served.Load(gvr)
	if !ok {
		return nil
	}
	return found.(*Resource)
}

// FindOwn returns a resource for the server's own use. Unlike Find, it also returns built-in resources whose version is
// disabled.
func (d *Directory) FindOwn(gvr schema.GroupVersionResource) *Resource {
	if r := d.Find(gvr); r != nil {
		return r
	}
	found, ok := d.disabled.Load(gvr)
	if !ok {
		return nil
	}
	return found.(*Resource)
}

// Has reports whether name is served in a group and version. The name is a resource, or a resource and one of its
// subresources with a slash between them. Has is too slow to be called for every request.
func (d *Directory) Has(group, version, name string) bool {
	resource, _, _ := strings.Cut(name, "/")
	r := d.Find(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
	if r == nil || r.Hidden || r.Describe == nil {
		return false
	}
	return slices.ContainsFunc(r.Describe(), func(entry metav1.APIResource) bool { return entry.Name == name })
}

// HasSource reports whether any resource of a group was declared by source.
func (d *Directory) HasSource(group string, source Source) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, version := range d.groups[group] {
		for _, r := range version {
			if r.Source == source {
				return true
			}
		}
	}
	return false
}

// GroupVersions returns every version of every group, in no order.
func (d *Directory) GroupVersions() []schema.GroupVersion {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var out []schema.GroupVersion
	for group, versions := range d.groups {
		for version := range versions {
			out = append(out, schema.GroupVersion{Group: group, Version: version})
		}
	}
	return out
}

// Versions returns the versions of a group, in no order.
func (d *Directory) Versions(group string) []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Collect(maps.Keys(d.groups[group]))
}

// Resources returns the resources of a version of a group, announced ones too, in no order.
func (d *Directory) Resources(gv schema.GroupVersion) []*Resource {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Collect(maps.Values(d.groups[gv.Group][gv.Version]))
}

// Put adds a resource, or replaces the one of that name. A built-in resource stays if a custom one of the same
// name is put.
func (d *Directory) Put(r *Resource) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.Find(r.GVR); old != nil && old.Source < r.Source {
		return
	}
	if r.Hidden {
		d.served.Store(r.GVR, r)
		d.unlist(d.listed(r.GVR)) // the listed one is of a definition that was stored before the program had r
		return
	}
	versions := d.groups[r.GVR.Group]
	if versions == nil {
		versions = map[string]resources{}
		d.groups[r.GVR.Group] = versions
	}
	if versions[r.GVR.Version] == nil {
		versions[r.GVR.Version] = resources{}
	}
	if old := d.listed(r.GVR); old != nil && old.Source < r.Source {
		return
	}
	versions[r.GVR.Version][r.GVR.Resource] = r
	if r.Announced {
		d.served.Delete(r.GVR)
	} else {
		d.served.Store(r.GVR, r)
	}
	d.notify(r.GVR.GroupVersion())
}

// Remove removes a resource if it was declared by source.
func (d *Directory) Remove(gvr schema.GroupVersionResource, source Source) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.listed(gvr); old != nil && old.Source == source {
		d.served.CompareAndDelete(gvr, old)
		d.unlist(old)
	}
}

// listed returns the resource that the lists have under a name, or nil. Hidden resources are not in the lists. The
// caller holds mu.
func (d *Directory) listed(gvr schema.GroupVersionResource) *Resource {
	return d.groups[gvr.Group][gvr.Version][gvr.Resource]
}

// unlist removes a resource from the lists only; r may be nil. The caller holds mu.
func (d *Directory) unlist(r *Resource) {
	if r == nil {
		return
	}
	gvr := r.GVR
	versions := d.groups[gvr.Group]
	delete(versions[gvr.Version], gvr.Resource)
	if len(versions[gvr.Version]) == 0 {
		delete(versions, gvr.Version)
	}
	if len(versions) == 0 {
		delete(d.groups, gvr.Group)
	}
	d.notify(gvr.GroupVersion())
}

// ServeHTTP passes the request to the handler of the resource that it names. The request's Info must be in its
// context. The answer is 404 if the resource is not served.
func (d *Directory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info := request.InfoFrom(r.Context())
	found := d.Find(schema.GroupVersionResource{Group: info.Group, Version: info.Version, Resource: info.Resource})
	if found == nil {
		apiresponse.Error(w, r, apierr.PathNotFound())
		return
	}
	found.Handler.ServeHTTP(w, r)
}

// PutBuiltIn adds all resources of a registry in all their versions; disabled versions are not in discovery.
// handler returns the HTTP handler of a resource. It may be nil if the directory serves no HTTP requests.
func (d *Directory) PutBuiltIn(g *registry.Registry, handler func(*registry.Served) http.Handler) {
	for _, r := range g.Resources() {
		for i := range r.Kind.Versions {
			served := registry.NewServed(r, &r.Kind.Versions[i])
			put := &Resource{
				GVR: served.GVR, Source: BuiltIn,
				Open:     func(context.Context) (*registry.Served, func(), error) { return served, func() {}, nil },
				Describe: func() []metav1.APIResource { return served.Kind.APIResources(served.GVR.GroupVersion()) },
			}
			if served.Version.Disabled {
				d.disabled.Store(put.GVR, put)
				continue
			}
			if handler != nil {
				put.Handler = handler(served)
			}
			d.Put(put)
		}
	}
}
