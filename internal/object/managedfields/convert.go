package managedfields

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// A converter converts between the versions of a kind, for the general algorithm.
type converter struct {
	config Config
	ctx    context.Context // of the request: the interfaces of the algorithm have no context
}

func (c *converter) version(gv schema.GroupVersion) *Version {
	for i := range c.config.Versions {
		if c.config.Versions[i].GroupVersion == gv {
			return &c.config.Versions[i]
		}
	}
	return nil
}

// unknown returns the error of a conversion to a version that does not exist. With this error, the general
// algorithm drops the entry of managedFields. With any other error, it fails.
func (c *converter) unknown(gv schema.GroupVersion) error {
	return runtime.NewNotRegisteredErrForKind("managedfields", gv.WithKind(c.config.Kind.Kind))
}

// ConvertToVersion implements runtime.ObjectConvertor. It may return its argument, and never changes it.
func (c *converter) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	from := in.GetObjectKind().GroupVersionKind()
	to, ok := target.KindForGroupVersionKinds(c.kinds(from))
	if !ok {
		if gv, isVersion := target.(schema.GroupVersion); isVersion {
			return nil, c.unknown(gv)
		}
		return nil, c.unknown(from.GroupVersion())
	}
	source, destination := c.version(from.GroupVersion()), c.version(to.GroupVersion())
	if source == nil {
		return nil, c.unknown(from.GroupVersion())
	}
	if destination == nil {
		return nil, c.unknown(to.GroupVersion())
	}
	object, err := c.typed(in, source, from)
	if err != nil {
		return nil, err
	}
	if source == destination {
		return object, nil
	}
	object = object.DeepCopyObject().(registry.Object)
	type conversion = func(context.Context, registry.Object) (registry.Object, error)
	for _, step := range []conversion{source.ToStorage, destination.FromStorage} {
		if step == nil {
			continue
		}
		if object, err = step(c.ctx, object); err != nil {
			return nil, err
		}
	}
	object.GetObjectKind().SetGroupVersionKind(to)
	return object, nil
}

// kinds returns the kinds that an object of kind from can be converted to: from itself, and the kind in all
// versions, which may be of other groups (an Event is served as v1 and as events.k8s.io/v1).
func (c *converter) kinds(from schema.GroupVersionKind) []schema.GroupVersionKind {
	out := make([]schema.GroupVersionKind, 0, len(c.config.Versions)+1)
	out = append(out, from)
	for i := range c.config.Versions {
		out = append(out, c.config.Versions[i].GroupVersion.WithKind(from.Kind))
	}
	return out
}

// typed converts a tree to the Go type of a version. It returns in itself if in is not a tree, or if the objects
// of the version are trees.
func (c *converter) typed(in runtime.Object, v *Version, kind schema.GroupVersionKind) (registry.Object, error) {
	tree, isTree := in.(*unstructured.Unstructured)
	object := v.New()
	if _, wantsTree := object.(*unstructured.Unstructured); !isTree || wantsTree {
		return in.(registry.Object), nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree.Object, object); err != nil {
		return nil, fmt.Errorf("unable to convert unstructured object to %v: %v", kind, err)
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	return object, nil
}

// Convert and ConvertFieldLabel complete runtime.ObjectConvertor. The algorithm calls neither.
func (c *converter) Convert(in, out, context any) error {
	return fmt.Errorf("managedfields: no conversion of %T into %T", in, out)
}

func (c *converter) ConvertFieldLabel(schema.GroupVersionKind, string, string) (string, string, error) {
	return "", "", fmt.Errorf("managedfields: no field labels")
}

// Default implements runtime.ObjectDefaulter.
func (c *converter) Default(in runtime.Object) {
	if c.config.Default != nil {
		c.config.Default(in.(registry.Object))
	}
}

// New implements runtime.ObjectCreater.
func (c *converter) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	v := c.version(kind.GroupVersion())
	if v == nil || kind.Kind != c.config.Kind.Kind {
		return nil, c.unknown(kind.GroupVersion())
	}
	object := v.New()
	object.GetObjectKind().SetGroupVersionKind(kind)
	return object, nil
}
