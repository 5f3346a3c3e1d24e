package write

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8sfields "k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/api/write/patch"
	"github.com/keelson-dev/keelson/internal/object/managedfields"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Every write of the scale subresource works on a Scale: it changes the Scale of the current parent, and the parent
// then takes the replicas, the resourceVersion and the managedFields of the result. No other field of a Scale, and no
// other part of a body, reaches the parent.
//
// The parent's managedFields name the managers of its replicas. Before the change they are converted to the managedFields
// of a Scale, and afterwards back, so that the change is recorded, and conflicts are found, as for any other object.

// ScaleKind is the kind that every scale subresource takes and returns.
var ScaleKind = schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}

// unsetReplicas stands for replicas that a custom resource does not have. No client can mean this number, because
// negative replicas are refused.
const unsetReplicas = math.MinInt32

// Scaling is the requested change of a Scale.
type Scaling struct {
	// Exactly one of Changed and Configuration is set. Changed returns the new Scale of a PUT or a patch. It must not
	// change live. It may be called more than once.
	Changed func(live *autoscalingv1.Scale) (*autoscalingv1.Scale, error)
	// Configuration is applied (server-side apply).
	Configuration *patch.Configuration
	// Replaces means that the request has a complete Scale (PUT).
	Replaces bool
	// Check refuses a Scale that does not belong to the named object; nil accepts all.
	Check func(*autoscalingv1.Scale) error
}

// scaling is one write of a scale subresource.
type scaling struct {
	Scaling
	p   *Pipeline
	t   *registry.Served
	sub *registry.Subresource
	o   Options
	// before is the Scale that the last call of make began with.
	before *autoscalingv1.Scale
}

// Scale returns the request that changes the replicas of an object.
func (p *Pipeline) Scale(
	t *registry.Served, sub *registry.Subresource, namespace, name string, o Options, s Scaling,
) Request {
	w := &scaling{Scaling: s, p: p, t: t, sub: sub, o: o}
	return Request{
		Verb: Scale, Target: t, Subresource: sub, Namespace: namespace, Name: name, Options: o, CheckUID: s.Replaces,
		Make: w.make, Merge: w.merge,
		Body:   &admission.Names{Kind: ScaleKind, Resource: t.GVR},
		View:   func(obj registry.Object) registry.Object { return ScaleOf(sub, obj) },
		Before: func() registry.Object { return w.before },
	}
}

// ScaleOf makes the Scale of an object in the storage version.
func ScaleOf(sub *registry.Subresource, obj registry.Object) *autoscalingv1.Scale {
	spec, status, selector := sub.Scale.Get(obj)
	scale := &autoscalingv1.Scale{
		Spec:   autoscalingv1.ScaleSpec{Replicas: spec},
		Status: autoscalingv1.ScaleStatus{Replicas: status, Selector: selector},
	}
	scale.Name, scale.Namespace, scale.UID = obj.GetName(), obj.GetNamespace(), obj.GetUID()
	scale.ResourceVersion, scale.CreationTimestamp = obj.GetResourceVersion(), obj.GetCreationTimestamp()
	return scale
}

// fields returns the field manager of Scales, which records in the managedFields of a Scale who set the replicas.
func (sc *scaling) fields() (*managedfields.Manager, error) {
	return sc.p.managers.ofBody(sc.t, sc.sub, registry.NewScale)
}

// make returns the changed Scale of the current object.
func (sc *scaling) make(ctx context.Context, c *Current) (registry.Object, error) {
	fields, err := sc.fields()
	if err != nil {
		return nil, err
	}
	live, err := sc.live(c)
	if err != nil {
		return nil, err
	}
	sc.before = live.DeepCopy()
	if sc.Configuration != nil {
		return sc.applied(ctx, fields, live)
	}
	after, err := sc.Changed(live)
	if err != nil {
		return nil, err
	}
	// All of the Scale is checked here, before admission. What webhooks then change in its metadata is not checked
	// again, except for managedFields: of the metadata, the parent takes only resourceVersion and managedFields.
	checked := *after
	checked.Namespace = c.Object.Namespace
	// Errors about the replicas alone do not count here: admission may still change them, and check finds what
	// remains.
	if errs := validateScale(&checked); len(errs) > len(validateReplicas(after)) && !sc.t.Kind.Unstructured() {
		return nil, kerrors.NewInvalid(ScaleKind.GroupKind(), c.Object.Name, errs)
	}
	return fields.Update(ctx, live, after, sc.o.FieldManager, sc.p.Now()), nil
}

// applied merges an applied configuration of a Scale: the schema of a Scale refuses any other field.
func (sc *scaling) applied(
	ctx context.Context, fields *managedfields.Manager, live *autoscalingv1.Scale,
) (registry.Object, error) {
	obj, err := fields.Apply(ctx, live, sc.Configuration.Object, sc.o.FieldManager, sc.o.Force != nil &&
		*sc.o.Force, sc.p.Now())
	if err != nil {
		return nil, err
	}
	scale, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return nil, errors.New("an applied Scale became something else")
	}
	return scale, sc.Check(scale)
}

// live returns the Scale of the current object, with which a change begins.
func (sc *scaling) live(c *Current) (*autoscalingv1.Scale, error) {
	obj, s := c.Stored(), sc.sub.Scale
	if s.Check != nil {
		if err := s.Check(obj); err != nil {
			return nil, err
		}
	}
	scale := ScaleOf(sc.sub, obj)
	if s.Has != nil && !s.Has(obj) {
		scale.Spec.Replicas = unsetReplicas
	}
	var err error
	scale.ManagedFields, err = sc.owners(obj).ToSubresource()
	return scale, err
}

// owners returns a handler that converts the managedFields of the parent to those of its Scale, and back.
func (sc *scaling) owners(obj registry.Object) *k8sfields.ScaleHandler {
	return k8sfields.NewScaleHandler(obj.GetManagedFields(), sc.t.GVK.GroupVersion(), sc.replicasPaths())
}

// merge returns a copy of the parent that has the replicas of the changed Scale.
func (sc *scaling) merge(ctx context.Context, c *Current, changed registry.Object) (registry.Object, error) {
	scale := changed.(*autoscalingv1.Scale)
	obj := c.Copy()
	if err := sc.check(c, scale, obj); err != nil {
		return nil, err
	}
	if err := sc.sub.Scale.Set(obj, scale.Spec.Replicas); err != nil {
		return nil, err
	}
	// A Scale of a built-in kind without a resourceVersion takes the version from the parent too. The step
	// "check" then treats the write as unconditional, or refuses it if the kind has no unconditional updates. A
	// custom resource keeps the version with which the write began.
	if scale.ResourceVersion != "" || !sc.t.Kind.Unstructured() {
		obj.SetResourceVersion(scale.ResourceVersion)
	}
	entries, err := sc.owners(c.Stored()).ToParent(scale.ManagedFields)
	if err != nil {
		return nil, err
	}
	obj.SetManagedFields(entries)
	return obj, nil
}

// validateScale checks all of a Scale. The parent takes only its replicas, but the client also gets the errors
// about other fields.
func validateScale(scale *autoscalingv1.Scale) field.ErrorList {
	path := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessor(scale, true, validation.NameIsDNSSubdomain, path)
	errs = append(errs, nonstandardFinalizers(scale, path)...)
	return append(errs, validateReplicas(scale)...)
}

func validateReplicas(scale *autoscalingv1.Scale) (errs field.ErrorList) {
	if replicas := scale.Spec.Replicas; replicas < 0 {
		errs = append(
			errs,
			field.Invalid(field.NewPath("spec", "replicas"), replicas, "must be greater than or equal to 0").WithOrigin("minimum"),
		)
	}
	return errs
}

// check refuses a Scale that its parent cannot take.
func (sc *scaling) check(c *Current, scale *autoscalingv1.Scale, obj registry.Object) error {
	tree, replicas := sc.t.Kind.Unstructured(), scale.Spec.Replicas
	if sc.sub.Scale.Has != nil && replicas == unsetReplicas {
		return kerrors.NewBadRequest(
			fmt.Sprintf("the spec replicas field %q cannot be empty", "."+strings.Join(sc.sub.Scale.Path, ".")),
		)
	}
	name := c.Object.Name
	// The other metadata of the Scale does not reach the parent, so what admission made of it does not matter.
	errs := slices.DeleteFunc(validateScale(scale), func(e *field.Error) bool {
		return !strings.HasPrefix(e.Field, "spec.") && !strings.HasPrefix(e.Field, "metadata.managedFields")
	})
	if len(errs) > 0 && !tree {
		return kerrors.NewInvalid(ScaleKind.GroupKind(), name, errs)
	}
	switch {
	case scale.UID == "" || scale.UID == obj.GetUID():
	case !tree:
		gr := schema.GroupResource{Group: sc.t.GVR.Group, Resource: sc.t.GVR.Resource + "/scale"}
		return kerrors.NewConflict(gr, name, fmt.Errorf( //nolint:staticcheck // kube-apiserver's words
			"Precondition failed: UID in precondition: %v, UID in object meta: %v", scale.UID, obj.GetUID()))
	}
	return nil
}

// replicasPaths are the paths of the replicas in the parent, by apiVersion. Entries of managedFields
// in other versions are dropped.
func (sc *scaling) replicasPaths() k8sfields.ResourcePathMappings {
	paths := k8sfields.ResourcePathMappings{}
	kind := sc.t.Kind
	for i := range kind.Versions {
		v := &kind.Versions[i]
		paths[kind.GroupVersion(v).String()] = sc.sub.Scale.PathIn(v.Name)
	}
	return paths
}
