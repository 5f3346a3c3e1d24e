package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/apierr"
)

// Lookup returns an object, decoded, nil if there is none. Unlike Get it may
// return a state before the latest: it asks the store only for what is not in the
// cache.
func (g *Registry) Lookup(ctx context.Context, gr schema.GroupResource, namespace, name string) (Object, error) {
	r := g.resources[gr]
	if r == nil {
		return nil, apierr.PathNotFound()
	}
	o, err := r.lookup(ctx, r.Key(namespace, name))
	if err != nil || o == nil {
		return nil, err
	}
	return r.Decode(o)
}
