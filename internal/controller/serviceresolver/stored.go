package serviceresolver

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Stored returns Objects that read from a registry. The results may be older than the latest change if other
// servers write to the same store.
func Stored(r *registry.Registry) Objects { return stored{r} }

type stored struct{ registry *registry.Registry }

// Service implements Objects.
func (s stored) Service(ctx context.Context, namespace, name string) (*corev1.Service, error) {
	obj, err := s.registry.Lookup(ctx, corev1.Resource("services"), namespace, name)
	if obj == nil || err != nil {
		return nil, err
	}
	return obj.(*corev1.Service), nil
}

// EndpointSlices implements Objects. It decodes only the slices of this Service.
func (s stored) EndpointSlices(
	ctx context.Context, namespace, service string,
) ([]*discoveryv1.EndpointSlice, error) {
	r := s.registry.Resource(discoveryv1.SchemeGroupVersion.WithResource("endpointslices").GroupResource())
	view, err := r.Reader.Recent(ctx)
	if err != nil {
		return nil, err
	}
	var out []*discoveryv1.EndpointSlice
	var failed error
	want := cache.Label{Key: discoveryv1.LabelServiceName, Value: service}
	err = view.Ascend(ctx, "", namespace+"/", 0, func(o *cache.Object) bool {
		if o, failed = r.Reader.Readable(ctx, o); failed != nil {
			return false
		}
		if !slices.Contains(o.Labels, want) {
			return true
		}
		var obj registry.Object
		if obj, failed = r.Decoder.Decode(ctx, o); failed == nil {
			out = append(out, obj.(*discoveryv1.EndpointSlice))
		}
		return failed == nil
	})
	return out, cmp.Or(err, failed)
}
