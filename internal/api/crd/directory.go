package crd

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// updateDirectory replaces the versions of old by those of d in the directory. Either may be nil. The caller holds
// mu.
func (s *Server) updateDirectory(old, d *definition) {
	for _, gvr := range old.servedVersions() {
		if d == nil || d.version(gvr.Version) == nil {
			s.o.Resources.Remove(gvr, directory.Custom)
		}
	}
	for _, gvr := range d.servedVersions() {
		r := &directory.Resource{
			GVR: gvr, Source: directory.Custom, Handler: s,
			Open:      func(ctx context.Context) (*registry.Served, func(), error) { return s.open(ctx, gvr) },
			Announced: !d.serves(),
		}
		if d.status.established() {
			r.Describe = func() []metav1.APIResource { return d.apiResources(d.version(gvr.Version)) }
		}
		s.o.Resources.Put(r)
	}
}

// servedVersions returns the served versions of the resource of a definition. A nil definition has none.
func (d *definition) servedVersions() []schema.GroupVersionResource {
	if d == nil {
		return nil
	}
	var out []schema.GroupVersionResource
	for i := range d.versions {
		if d.versions[i].served {
			out = append(out, d.key().WithVersion(d.versions[i].name))
		}
	}
	return out
}

// open returns a resource for use inside the server, and a function that ends the use. If the definition is replaced
// meanwhile, open tries again with the new one; after maxChanges tries it fails with cache.ErrRemoved.
func (s *Server) open(ctx context.Context, gvr schema.GroupVersionResource) (*registry.Served, func(), error) {
	if err := s.syncOwn(ctx, gvr.GroupResource(), "use"); err != nil {
		return nil, nil, err
	}
	for try := 0; try < maxChanges; try++ {
		found, ok := s.served.Load(gvr.GroupResource())
		if !ok {
			return nil, nil, apierr.PathNotFound()
		}
		d := found.(*definition)
		bound, err := s.bound(d, gvr.Version)
		switch {
		case errors.Is(err, cache.ErrRemoved):
		case err != nil:
			return nil, nil, err
		case bound == nil:
			return nil, nil, apierr.PathNotFound()
		case d.kinds.enter():
			return bound.Served(), d.kinds.inFlight.end, nil
		}
		select {
		case <-time.After(time.Duration(try) * changePause):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	return nil, nil, cache.ErrRemoved
}
