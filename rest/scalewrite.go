package rest

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/managed"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/rest/patch"
	"github.com/keelson-dev/keelson/scheme"
)

// Every write of the scale subresource works on a Scale alone: the Scale of the current parent is
// changed, and the parent then takes the replicas, the resourceVersion and the managedFields of the
// result. No other field of a Scale, and nothing that a body says beside them, reaches the parent.
//
// Ownership of the replicas is kept in the parent's managedFields. It is translated to that of a
// Scale before the change and back after it, so that the change itself is recorded, and conflicts are
// found, as for any object of its own.

// unsetReplicas stands for replicas that a custom resource does not have.
const unsetReplicas = math.MinInt32

// A scaleWrite is one PUT or PATCH of a scale subresource.
type scaleWrite struct {
	incoming
	h    *Handler
	r    *http.Request
	info *request.Info
	s    *served
	sub  *registry.Subresource
	// fields records who set the replicas in the managedFields of the Scale.
	fields *managed.Manager
	// change returns the Scale that the request makes of the current one, with its managedFields. It
	// may change its argument, and may be called more than once.
	change func(live *autoscalingv1.Scale) (*autoscalingv1.Scale, error)
}

func (h *Handler) newScaleWrite(r *http.Request, info *request.Info, s *served, in incoming) (*scaleWrite, error) {
	sub := s.Kind.Subresource(info.Subresource)
	fields, err := h.scaleManager(s, sub)
	return &scaleWrite{incoming: in, h: h, r: r, info: info, s: s, sub: sub, fields: fields}, err
}

func (h *Handler) updateScale(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	in, err := h.incoming(r, info, s, updateOptions)
	if err != nil {
		return err
	}
	u, err := h.newScaleWrite(r, info, s, in)
	if err != nil {
		return err
	}
	sent, err := decodeWith(s.subDecoder(u.sub, registry.NewScale, "autoscaling.Scale"), r, in)
	switch {
	case err != nil && s.Kind.Trees():
		// kube-apiserver fails to name the kind in its message here.
		return kerrors.NewBadRequest(`no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"`)
	case err != nil:
		return err
	}
	noteSent(r, scaleKind, sent)
	if err := checkName(sent, info); err != nil {
		return err
	}
	u.change = func(live *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
		return u.owned(live, sent.(*autoscalingv1.Scale).DeepCopy()), nil
	}
	return u.write(w)
}

func (h *Handler) patchScale(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	in, err := h.incomingPatch(r, info, s)
	if err != nil {
		return err
	}
	u, err := h.newScaleWrite(r, info, s, in)
	if err != nil {
		return err
	}
	if in.patch != types.ApplyYAMLPatchType {
		u.change = u.patched
		return u.write(w)
	}
	configuration, err := patch.Apply(in.body, in.validation)
	if err != nil {
		return err
	}
	u.change = func(live *autoscalingv1.Scale) (*autoscalingv1.Scale, error) { return u.applied(live, configuration) }
	return u.write(w)
}

// write stores what change makes of the current Scale, and answers.
func (u *scaleWrite) write(w http.ResponseWriter) error {
	options := u.h.updateOptions(u.info, u.s, u.sub, u.writeOptions)
	result, err := u.s.Update(u.r.Context(), u.info.Namespace, u.info.Name, options, u.parent)
	if err != nil {
		return err
	}
	return u.s.writeScale(w, u.r, u.info, u.accepted, result.Object)
}

// parent makes the new parent of the current one.
func (u *scaleWrite) parent(c *registry.Current) (registry.Object, error) {
	obj, err := c.Decode()
	if err != nil {
		return nil, err
	}
	owners := managedfields.NewScaleHandler(obj.GetManagedFields(), u.s.gvk.GroupVersion(), u.replicasPaths())
	live, err := u.live(obj, owners)
	if err != nil {
		return nil, err
	}
	scale, err := u.change(live)
	if err != nil {
		return nil, err
	}
	if err := u.check(c, scale, obj); err != nil {
		return nil, err
	}
	if err := u.sub.Scale.Set(obj, scale.Spec.Replicas); err != nil {
		return nil, err
	}
	if scale.ResourceVersion != "" || !u.s.Kind.Trees() {
		obj.SetResourceVersion(scale.ResourceVersion)
	}
	entries, err := owners.ToParent(scale.ManagedFields)
	if err != nil {
		return nil, err
	}
	obj.SetManagedFields(entries)
	return obj, nil
}

// live is the Scale that a change begins with.
func (u *scaleWrite) live(obj registry.Object, owners *managedfields.ScaleHandler) (*autoscalingv1.Scale, error) {
	s := u.sub.Scale
	if s.Check != nil {
		if err := s.Check(obj); err != nil {
			return nil, err
		}
	}
	scale := scaleOf(u.sub, obj)
	if s.Has != nil && !s.Has(obj) {
		scale.Spec.Replicas = unsetReplicas
	}
	entries, err := owners.ToSubresource()
	scale.ManagedFields = entries
	return scale, err
}

// check refuses a Scale that its parent cannot take.
func (u *scaleWrite) check(c *registry.Current, scale *autoscalingv1.Scale, obj registry.Object) error {
	tree, replicas := u.s.Kind.Trees(), scale.Spec.Replicas
	if u.sub.Scale.Has != nil && replicas == unsetReplicas {
		return kerrors.NewBadRequest(fmt.Sprintf("the spec replicas field %q cannot be empty", "."+strings.Join(u.sub.Scale.Path, ".")))
	}
	if replicas < 0 && !tree {
		return kerrors.NewInvalid(scaleKind.GroupKind(), u.info.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "replicas"), replicas, "must be greater than or equal to 0").WithOrigin("minimum"),
		})
	}
	switch {
	case scale.UID == "" || scale.UID == obj.GetUID():
	case u.patch == "":
		return u.s.UIDMismatch(c.Object, scale.UID, obj.GetUID())
	case !tree:
		gr := schema.GroupResource{Group: u.s.gr.Group, Resource: u.s.gr.Resource + "/scale"}
		return kerrors.NewConflict(gr, u.info.Name,
			fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", scale.UID, obj.GetUID())) //nolint:staticcheck // kube-apiserver's words
	}
	return nil
}

// owned records in the managedFields of scale what the request's manager changed of live.
func (u *scaleWrite) owned(live, scale *autoscalingv1.Scale) *autoscalingv1.Scale {
	return u.fields.Update(live, scale, u.manager, u.h.o.Now()).(*autoscalingv1.Scale)
}

// patched applies a JSON patch, a merge patch or a strategic merge patch.
func (u *scaleWrite) patched(live *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
	after := &autoscalingv1.Scale{}
	before := live.DeepCopy()
	before.SetGroupVersionKind(scaleKind)
	var warnings []string
	var err error
	if u.patch == types.StrategicMergePatchType {
		warnings, err = patch.Strategic(before, after, u.body, u.validation)
	} else {
		warnings, err = patchScaleDocument(before, after, u.incoming)
	}
	if err == nil {
		err = checkName(after, u.info)
	}
	u.warn(warnings)
	if err != nil {
		return nil, err
	}
	return u.owned(live, after), nil
}

func (u *scaleWrite) warn(warnings []string) {
	for _, text := range warnings {
		request.Warn(u.r.Context(), text)
	}
}

func patchScaleDocument(before, after *autoscalingv1.Scale, in incoming) ([]string, error) {
	item, err := scheme.EncodeItem(before)
	if err != nil {
		return nil, err
	}
	run := patch.Merge
	if in.patch == types.JSONPatchType {
		run = patch.JSON
	}
	doc, strict, err := run(scheme.AppendJSONObject(nil, scaleHead, item), in.body, in.validation)
	if err != nil {
		return nil, err
	}
	d := scheme.Decoder{GVK: scaleKind, Internal: "autoscaling.Scale", New: func() runtime.Object { return after }}
	more, err := d.DecodePatched(doc, in.validation != patch.Ignore)
	if err == nil && len(more) > 0 {
		err = runtime.NewStrictDecodingError(more)
	}
	return patch.Decoded(doc, strict, err, in.validation)
}

// applied merges an applied configuration, which has to be that of a Scale: the schema of a Scale
// refuses any other field.
func (u *scaleWrite) applied(live *autoscalingv1.Scale, configuration patch.Configuration) (*autoscalingv1.Scale, error) {
	force := u.force != nil && *u.force
	obj, err := u.fields.Apply(live, configuration.Object, u.incoming.manager, force, u.h.o.Now())
	if err != nil {
		return nil, err
	}
	scale, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return nil, errors.New("an applied Scale became something else")
	}
	warnings, err := configuration.Duplicates(u.validation)
	u.warn(warnings)
	if err != nil {
		return nil, err
	}
	return scale, checkName(scale, u.info)
}

// replicasPaths are the paths of the replicas in the parent, by apiVersion. Entries of managedFields
// in other versions are dropped.
func (u *scaleWrite) replicasPaths() managedfields.ResourcePathMappings {
	paths := managedfields.ResourcePathMappings{}
	for i := range u.s.Kind.Versions {
		v := &u.s.Kind.Versions[i]
		gv := schema.GroupVersion{Group: u.s.Kind.Group, Version: v.Name}
		if v.Group != "" {
			gv.Group = v.Group
		}
		paths[gv.String()] = u.sub.Scale.PathIn(v.Name)
	}
	return paths
}
