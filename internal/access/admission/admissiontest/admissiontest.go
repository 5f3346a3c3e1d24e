// Package admissiontest helps to test plug-ins: objects to look up, and attributes
// of writes.
package admissiontest

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Objects has the objects that exist, by resource. It is an admission.Objects.
type Objects map[schema.GroupResource][]registry.Object

// Lookup implements admission.Objects.
func (o Objects) Lookup(_ context.Context, r schema.GroupResource, namespace, name string) (registry.Object, error) {
	for _, obj := range o[r] {
		if obj.GetNamespace() == namespace && obj.GetName() == name {
			return obj, nil
		}
	}
	return nil, nil
}

// List implements admission.Objects.
func (o Objects) List(_ context.Context, r schema.GroupResource, namespace string) ([]registry.Object, error) {
	var out []registry.Object
	for _, obj := range o[r] {
		if namespace == "" || obj.GetNamespace() == namespace {
			out = append(out, obj)
		}
	}
	return out, nil
}

// Each calls yield for each object of a namespace, until it returns false, as *registry.Registry does.
func (o Objects) Each(
	ctx context.Context, r schema.GroupResource, namespace string, yield func(func() (registry.Object, error)) bool,
) error {
	all, err := o.List(ctx, r, namespace)
	for _, obj := range all {
		if !yield(func() (registry.Object, error) { return obj, nil }) {
			break
		}
	}
	return err
}

// Creation returns the attributes of a create of obj.
func Creation(r schema.GroupResource, obj registry.Object) *admission.Attributes {
	return &admission.Attributes{
		Operation: admission.Create, Resource: r, Namespace: obj.GetNamespace(), Name: obj.GetName(), Object: obj,
	}
}

// Change returns the attributes of an update of old to obj.
func Change(r schema.GroupResource, obj, old registry.Object) *admission.Attributes {
	return &admission.Attributes{
		Operation: admission.Update, Resource: r, Namespace: obj.GetNamespace(), Name: obj.GetName(), Object: obj, Old: old,
	}
}
