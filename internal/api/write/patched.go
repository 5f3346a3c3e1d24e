package write

import (
	"context"
	"maps"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/write/patch"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Patched makes the new object of a write by a patch of the current one.
type Patched struct {
	patch.Patch
	Target *registry.Served
	// Warnings are the warnings of the last call of Make, which is called again for each attempt.
	Warnings []string
}

// Make is the Make function of the write.
func (p *Patched) Make(ctx context.Context, c *Current) (registry.Object, error) {
	p.Warnings = nil
	live, err := c.Requested(ctx)
	if err != nil {
		return nil, err
	}
	obj := p.Target.Version.New()
	// mergeTree and mergeParts do not encode the whole object. They apply only patches without any warning or
	// error; document applies all others, and reports these.
	switch {
	case p.Type == types.StrategicMergePatchType:
		live.GetObjectKind().SetGroupVersionKind(p.Target.GVK)
		p.Warnings, err = patch.Strategic(live, obj, p.Body, p.Validation)
	case p.mergeTree(live, obj):
	case p.mergeParts(live, obj):
	default:
		err = p.document(ctx, c, obj)
	}
	if err != nil {
		return nil, err
	}
	// A patch may remove the apiVersion of a custom resource. The answer is 500, although the client is at fault.
	if p.Target.Kind.Unstructured() && obj.GetObjectKind().GroupVersionKind().Version == "" {
		return nil, kerrors.NewInternalError(runtime.NewMissingVersionErr("object has no apiVersion field"))
	}
	if p.Target.Version.Default != nil {
		p.Target.Version.Default(obj)
	}
	return obj, nil
}

// document applies the patch to the object's JSON document, and decodes the result into obj.
func (p *Patched) document(ctx context.Context, c *Current, obj registry.Object) error {
	item, err := p.Target.Resource.Renderer.ItemJSON(ctx, c.Object, p.Target.Version)
	if err != nil {
		return err
	}
	d := p.Target.Decoder()
	d.New = func() runtime.Object { return obj }
	p.Warnings, err = p.Document(
		scheme.AppendJSONObject(nil, p.Target.JSONHead, item), d,
		func(track bool) ([]error, error) { return p.Target.Coerce(obj, track) },
	)
	return err
}

// mergeTree applies a merge patch to a decoded custom resource. It returns false, and leaves the patch to document, if
// there may be warnings or errors about the patch or its result.
func (p *Patched) mergeTree(live, obj registry.Object) bool {
	before, ok := live.(*unstructured.Unstructured)
	if !ok || p.Type != types.MergePatchType {
		return false
	}
	changes, ok := scheme.ParseTree(p.Body)
	if !ok || !keeps(before, changes, "apiVersion") || !keeps(before, changes, "kind") {
		return false
	}
	// live is shared, so the patch is applied to a copy.
	after := copyTree(before.Object)
	patch.MergeTree(after, changes)
	obj.(*unstructured.Unstructured).Object = after
	unknown, err := p.Target.Coerce(obj, p.Validation != patch.Ignore)
	return err == nil && len(unknown) == 0
}

// mergeParts applies a merge patch to an object of a Go type that is stored as protobuf. It is not for kinds that are
// stored as JSON, because JSON has several notations of the same value. It returns false if patch.MergeParts does;
// then document applies the patch.
func (p *Patched) mergeParts(live, obj registry.Object) bool {
	k := p.Target.Kind
	if p.Type != types.MergePatchType || k.Storage.JSON {
		return false
	}
	live.GetObjectKind().SetGroupVersionKind(p.Target.GVK)
	return patch.MergeParts(live, obj, p.Body)
}

// keeps reports whether the member name of the object is a text that is not empty, and the changes do not set it to
// another value.
func keeps(before *unstructured.Unstructured, changes map[string]any, name string) bool {
	text, isText := before.Object[name].(string)
	v, named := changes[name]
	return isText && text != "" && (!named || v == text)
}

// copyTree copies a tree except for the entries of its managedFields, which are immutable.
func copyTree(tree map[string]any) map[string]any {
	meta, ok := tree["metadata"].(map[string]any)
	entries, owned := meta["managedFields"]
	if !ok || !owned {
		return runtime.DeepCopyJSON(tree)
	}
	meta = maps.Clone(meta)
	delete(meta, "managedFields")
	tree = maps.Clone(tree)
	tree["metadata"] = meta
	tree = runtime.DeepCopyJSON(tree)
	tree["metadata"].(map[string]any)["managedFields"] = entries
	return tree
}
