// Package versions shows the objects of writes to webhooks and policies in the version that they ask for.
package versions

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/mergeschema"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Versions converts objects between the versions of their kinds. Its methods may be called concurrently.
type Versions struct {
	resources *directory.Directory
	kinds     sync.Map // schema.GroupVersionKind -> the schema.GroupVersionResource that had the kind last time
}

// New returns the versions of the resources in a directory.
func New(resources *directory.Directory) *Versions { return &Versions{resources: resources} }

// Equivalents returns the resources other than gvr that have the same objects: custom resources of the same
// definition, and built-in ones that are stored together. If the subresource has a kind of its own, the results
// have its kind.
func (v *Versions) Equivalents(
	ctx context.Context, gvr schema.GroupVersionResource, subresource string,
) []admission.Names {
	own := v.resources.FindOwn(gvr)
	if own == nil {
		return nil
	}
	var out []admission.Names
	for _, gv := range v.resources.GroupVersions() {
		other := v.resources.Find(gv.WithResource(gvr.Resource))
		if other == nil || other.GVR == gvr || other.Source != own.Source {
			continue
		}
		if other.GVR.Group != gvr.Group && own.Source != directory.BuiltIn {
			continue
		}
		if names, ok := v.sameObjects(ctx, own, other, subresource); ok {
			out = append(out, names)
		}
	}
	return out
}

// sameObjects returns the names of other if it has the same objects as own.
func (v *Versions) sameObjects(
	ctx context.Context, own, other *directory.Resource, subresource string,
) (names admission.Names, same bool) {
	a, done, err := own.Open(ctx)
	if err != nil {
		return names, false
	}
	defer done()
	b, doneOther, err := other.Open(ctx)
	if err != nil {
		return names, false
	}
	defer doneOther()
	if own.Source == directory.BuiltIn && a.Resource != b.Resource {
		return names, false
	}
	names = admission.Names{Kind: b.GVK, Resource: b.GVR}
	if subresource == "" {
		return names, true
	}
	sub := b.Kind.Subresource(subresource)
	if sub == nil {
		return names, false
	}
	names.Kind = b.KindOf(sub)
	return names, true
}

// Convert returns an object of a write in the version of names; obj is in the storage version. If both are the
// same version, the result is obj itself. The caller must not change the result.
func (v *Versions) Convert(
	ctx context.Context, a *admission.Attributes, obj registry.Object, names admission.Names,
) (registry.Object, error) {
	if obj == nil {
		return nil, nil
	}
	if obj == a.Old && a.Operation == admission.Delete {
		var err error
		if obj, err = v.deleted(ctx, a); err != nil {
			return nil, err
		}
	}
	if names.Kind == a.Stored.Kind {
		return obj, nil
	}
	served, done, err := v.open(ctx, names.Resource)
	if err != nil {
		return nil, err
	}
	defer done()
	if names.Kind != served.GVK { // the body of a subresource, which has one version
		return obj, nil
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		obj = u.DeepCopy() // a copy, because conversion may change it
	}
	return v.inRequested(ctx, a, served, names, func(r *registry.Served, version *registry.Version) (registry.Object, error) {
		return r.Resource.Decoder.ToVersion(ctx, obj, version)
	})
}

// deleted returns the object of a deletion in the version of the request. The write has a custom resource in the
// version in which it is stored: so a deletion that no webhook or policy asks about needs no conversion webhook.
func (v *Versions) deleted(ctx context.Context, a *admission.Attributes) (registry.Object, error) {
	stored, ok := a.Old.(*unstructured.Unstructured)
	if !ok || a.Subresource != "" || stored.GroupVersionKind() == a.Stored.Kind {
		return a.Old, nil
	}
	requested, done, err := v.open(ctx, a.Requested.Resource)
	if err != nil {
		return nil, err
	}
	defer done()
	version := requested.Kind.Version(stored.GroupVersionKind().Version)
	if version == nil || version.ToStorage == nil {
		return a.Old, nil
	}
	obj, err := version.ToStorage(ctx, stored.DeepCopy())
	if err == nil && requested.Version.Default != nil {
		requested.Version.Default(obj)
	}
	return obj, err
}

// inRequested calls convert with a resource and its version for names. For a custom resource it is the resource of
// the requested version: each version is a kind of its own that takes itself for the storage version, and the
// objects of the write are in the requested one.
func (v *Versions) inRequested(
	ctx context.Context, a *admission.Attributes, served *registry.Served, names admission.Names,
	convert func(*registry.Served, *registry.Version) (registry.Object, error),
) (registry.Object, error) {
	if !served.Kind.Unstructured() {
		return convert(served, served.Version)
	}
	requested, done, err := v.open(ctx, a.Requested.Resource)
	if err != nil {
		return nil, err
	}
	defer done()
	version := requested.Kind.Version(names.Kind.Version)
	if version == nil {
		return nil, fmt.Errorf("%s is not served", names.Resource)
	}
	return convert(requested, version)
}

// Document returns an object of a write as a JSON document with apiVersion and kind, in the version of names. It
// returns nil if obj is nil.
func (v *Versions) Document(
	ctx context.Context, a *admission.Attributes, obj registry.Object, names admission.Names,
) ([]byte, error) {
	if obj == nil {
		return nil, nil
	}
	obj, err := v.Convert(ctx, a, obj, names)
	if err != nil {
		return nil, err
	}
	if _, ok := obj.(runtime.Unstructured); ok {
		return scheme.MarshalTree(obj)
	}
	item, err := scheme.EncodeItem(obj)
	if err != nil {
		return nil, err
	}
	return scheme.AppendJSONObject(nil, scheme.JSONHead(names.Kind), item), nil
}

// Types returns the merge schema of the objects of a write in the version of names. As in kube-apiserver, a subresource
// whose kind is in another API group or version than the resource (autoscaling/v1 Scale) has none.
func (v *Versions) Types(ctx context.Context, names admission.Names) (managedfields.TypeConverter, error) {
	served, done, err := v.open(ctx, names.Resource)
	if err != nil {
		return nil, err
	}
	defer done()
	switch {
	case names.Kind.GroupVersion() != names.Resource.GroupVersion():
		return mergeschema.Unknown(), nil
	case names.Kind == served.GVK && served.Kind.Types != nil:
		return served.Kind.Types, nil
	}
	return mergeschema.Converter{}, nil
}

// Replace replaces the content of a.Object by a JSON document in the version of names, with the defaults of that
// version. Unknown and duplicate fields are errors if strict is set.
func (v *Versions) Replace(
	ctx context.Context, a *admission.Attributes, document []byte, names admission.Names, strict bool,
) error {
	return v.replace(ctx, a, names, func(d scheme.Decoder) error {
		wrong, err := d.DecodePatched(document, strict)
		if err == nil && len(wrong) > 0 {
			return runtime.NewStrictDecodingError(wrong)
		}
		return err
	})
}

// ReplaceTree is Replace with a decoded document. The object may keep and change the document.
func (v *Versions) ReplaceTree(
	ctx context.Context, a *admission.Attributes, document map[string]any, names admission.Names,
) error {
	return v.replace(ctx, a, names, func(d scheme.Decoder) error {
		obj := d.New()
		if u, ok := obj.(*unstructured.Unstructured); ok {
			u.Object = document
			return nil
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(document, obj); err != nil {
			return fmt.Errorf("unable to convert unstructured object to %v: %w", names.Kind, err)
		}
		return nil
	})
}

// replace replaces the content of a.Object by the result of decode. decode must decode into the object that New of
// its argument returns.
func (v *Versions) replace(
	ctx context.Context, a *admission.Attributes, names admission.Names, decode func(scheme.Decoder) error,
) error {
	served, done, err := v.open(ctx, names.Resource)
	if err != nil {
		return err
	}
	defer done()
	if names.Kind != served.GVK { // the body of a subresource that has a kind of its own
		body := reflect.New(reflect.TypeOf(a.Object).Elem()).Interface().(registry.Object)
		if err := decode(scheme.Decoder{GVK: names.Kind, New: func() runtime.Object { return body }}); err != nil {
			return err
		}
		a.Object = body
		return nil
	}
	d := served.Decoder()
	obj := served.Version.New()
	d.New = func() runtime.Object { return obj }
	if err := decode(d); err != nil {
		return err
	}
	if _, err := served.Coerce(obj, false); err != nil {
		if u, ok := obj.(*unstructured.Unstructured); ok && u.GroupVersionKind() == served.GVK { // metadata of a wrong type
			return kerrors.NewInvalid(served.GVK.GroupKind(), a.Name, field.ErrorList{
				field.Invalid(field.NewPath("metadata"), u.Object["metadata"], err.Error()),
			})
		}
		return err
	}
	if served.Version.Default != nil {
		served.Version.Default(obj)
	}
	if names.Kind != a.Stored.Kind {
		if obj, err = v.inRequested(ctx, a, served, names,
			func(r *registry.Served, version *registry.Version) (registry.Object, error) {
				return r.Resource.Decoder.ToStorage(ctx, obj, version)
			}); err != nil {
			return err
		}
	}
	a.Object = obj
	return nil
}

// OpenKind returns the resource of a kind for reads, nil if the kind is not served. The caller calls done when it has
// finished.
func (v *Versions) OpenKind(
	ctx context.Context, kind schema.GroupVersionKind,
) (served *registry.Served, done func(), err error) {
	if gvr, ok := v.kinds.Load(kind); ok {
		if served, done, err = v.openIf(ctx, gvr.(schema.GroupVersionResource), kind); served != nil || err != nil {
			return served, done, err
		}
	}
	for _, r := range v.resources.Resources(kind.GroupVersion()) {
		if served, done, err = v.openIf(ctx, r.GVR, kind); served != nil || err != nil {
			v.kinds.Store(kind, r.GVR)
			return served, done, err
		}
	}
	return nil, nil, nil
}

// openIf opens a resource if it has the kind.
func (v *Versions) openIf(
	ctx context.Context, gvr schema.GroupVersionResource, kind schema.GroupVersionKind,
) (*registry.Served, func(), error) {
	found := v.resources.Find(gvr)
	if found == nil {
		return nil, nil, nil
	}
	served, done, err := found.Open(ctx)
	if err != nil {
		return nil, nil, err
	}
	if served.GVK != kind || served.Resource.Virtual() {
		done()
		return nil, nil, nil
	}
	return served, done, nil
}

func (v *Versions) open(ctx context.Context, gvr schema.GroupVersionResource) (*registry.Served, func(), error) {
	found := v.resources.FindOwn(gvr)
	if found == nil {
		return nil, nil, fmt.Errorf("%s is not served", gvr)
	}
	return found.Open(ctx)
}
