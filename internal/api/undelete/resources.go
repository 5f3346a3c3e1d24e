package undelete

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/object/apierr"
)

// longestWait is the longest time that a request waits until the resource of a new definition is served.
const longestWait = 3 * time.Second

// opened has the resources that an answer reads. close has to be called.
type opened struct {
	ctx       context.Context
	directory *directory.Directory
	discover  func() (resources []discovery.Resource, stale []schema.GroupVersion)

	discovered []discovery.Resource
	kinds      map[schema.GroupResource]*resource // nil for one that cannot be opened
	closers    []func()
}

func (o *opened) close() {
	for _, done := range o.closers {
		done()
	}
}

// open returns a resource that was discovered.
func (o *opened) open(found discovery.Resource) (*resource, error) {
	if r, known := o.kinds[found.GroupResource()]; known {
		if r == nil {
			return nil, apierr.PathNotFound()
		}
		return r, nil
	}
	o.kinds[found.GroupResource()] = nil // until it is open
	entry := o.directory.Find(found.GroupVersionResource)
	if entry == nil || entry.Open == nil {
		return nil, apierr.PathNotFound()
	}
	served, done, err := entry.Open(o.ctx)
	if err != nil {
		return nil, err
	}
	if served.Resource.Virtual() {
		done()
		return nil, apierr.PathNotFound()
	}
	o.closers = append(o.closers, done)
	found.Kind, found.Namespaced = served.Kind.Name, served.Kind.Namespaced // a request does not have them
	r := &resource{Resource: found, builtIn: entry.Source == directory.BuiltIn, served: served}
	o.kinds[found.GroupResource()] = r
	return r, nil
}

// all returns the resources that the server had at the first call, without those that were added since.
func (o *opened) all() []discovery.Resource {
	if o.discovered == nil {
		o.discovered, _ = o.discover()
	}
	return o.discovered
}

// find returns a resource by its name, nil if the server does not have it.
func (o *opened) find(gr schema.GroupResource) *resource {
	for _, found := range o.all() {
		if found.GroupResource() == gr && !found.Remote {
			if r, err := o.open(found); err == nil {
				return r
			}
		}
	}
	return nil
}

// await waits until a resource is served, because the resource of a new definition is not served at once. It
// returns nil after longestWait.
func (o *opened) await(gr schema.GroupResource) *resource {
	end := time.NewTimer(longestWait)
	defer end.Stop()
	for {
		o.discovered = nil
		delete(o.kinds, gr) // it may be one that could not be opened
		if r := o.find(gr); r != nil {
			return r
		}
		select {
		case <-o.ctx.Done():
			return nil
		case <-end.C:
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}
