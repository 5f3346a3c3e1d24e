package rest

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/managed"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/rest/negotiate"
	"github.com/keelson-dev/keelson/rest/patch"
	"github.com/keelson-dev/keelson/scheme"
	"github.com/keelson-dev/keelson/scheme/wire"
)

// The scale subresource shows a part of its parent as an autoscaling/v1 Scale.
// Ownership of spec.replicas is kept in the parent's managedFields, under the
// subresource's name.

var (
	scaleKind  = schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
	scaleProto = wire.NewEnvelopeHead(scaleKind.GroupVersion().String(), scaleKind.Kind)
	scaleHead  = scheme.JSONHead(scaleKind)
)

// scaleOf makes the Scale of an object in the storage version.
func scaleOf(sub *registry.Subresource, obj registry.Object) *autoscalingv1.Scale {
	spec, status, selector := sub.Scale.Get(obj)
	scale := &autoscalingv1.Scale{
		Spec:   autoscalingv1.ScaleSpec{Replicas: spec},
		Status: autoscalingv1.ScaleStatus{Replicas: status, Selector: selector},
	}
	scale.Name, scale.Namespace, scale.UID = obj.GetName(), obj.GetNamespace(), obj.GetUID()
	scale.ResourceVersion, scale.CreationTimestamp = obj.GetResourceVersion(), obj.GetCreationTimestamp()
	return scale
}

func (h *Handler) getScale(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	accepted, err := h.objectsFor(r, info, s)
	if err != nil {
		return err
	}
	o, err := s.read(r, info)
	if err != nil {
		return err
	}
	return s.writeScale(w, r, info, accepted, o)
}

func (s *served) writeScale(w http.ResponseWriter, r *http.Request, info *request.Info, accepted negotiate.Accepted, o *cache.Object) error {
	obj, err := s.Decode(o)
	if err != nil {
		return err
	}
	sub := s.Kind.Subresource(info.Subresource)
	if sub.Scale.Check != nil {
		if err := sub.Scale.Check(obj); err != nil {
			return kerrors.NewBadRequest(err.Error())
		}
	}
	if sub.Scale.Has != nil && !sub.Scale.Has(obj) {
		return kerrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist", "."+strings.Join(sub.Scale.Path, ".")))
	}
	scale := scaleOf(sub, obj)
	scale.SetGroupVersionKind(scaleKind)
	switch accepted.As {
	case negotiate.Table:
		table, err := scaleTable(r, accepted, scale)
		if err != nil {
			return err
		}
		if s.Kind.Trees() {
			table.ColumnDefinitions = treeScaleColumns
			if scale.Spec.Replicas == 0 {
				table.Rows[0].Cells[1] = nil // a Scale as JSON has no such member, where the cell is from
			}
		}
		return writeTyped(w, r, http.StatusOK, accepted, wire.EnvelopeHead{}, table)
	case negotiate.PartialMetadata:
		partial := partialScale(accepted, scale)
		head := wire.NewEnvelopeHead(partial.APIVersion, partial.Kind)
		return writeTyped(w, r, http.StatusOK, accepted, head, partial)
	case negotiate.PartialMetadataList:
		return apierr.NotAcceptable("you requested PartialObjectMetadataList, but the requested object is not a list (*autoscaling.Scale)")
	}
	return writeTyped(w, r, http.StatusOK, accepted, scaleProto, scale)
}

var scaleColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]},
	{Name: "Desired", Type: "integer", Description: autoscalingv1.ScaleSpec{}.SwaggerDoc()["replicas"]},
	{Name: "Available", Type: "integer", Description: autoscalingv1.ScaleStatus{}.SwaggerDoc()["replicas"]},
	{Name: "Age", Type: "string", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]},
}

// treeScaleColumns are those of custom resources.
var treeScaleColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]},
	{Name: "Desired", Type: "integer", Description: "Number of desired replicas"},
	{Name: "Available", Type: "integer", Description: "Number of actual replicas"},
	{Name: "Age", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]},
}

// scaleTable shows a Scale as a Table of one row.
func scaleTable(r *http.Request, accepted negotiate.Accepted, scale *autoscalingv1.Scale) (*metav1.Table, error) {
	include, err := includeObject(r)
	if err != nil {
		return nil, err
	}
	row := metav1.TableRow{Cells: []any{scale.Name, scale.Spec.Replicas, scale.Status.Replicas, registry.ElapsedText(scale.CreationTimestamp.Time, time.Now())}}
	switch include {
	case includePolicy(metav1.IncludeObject):
		row.Object.Object = scale
	case includePolicy(metav1.IncludeMetadata):
		row.Object.Object = partialScale(accepted, scale)
	}
	return &metav1.Table{
		TypeMeta:          metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/" + accepted.AsVersion},
		ListMeta:          metav1.ListMeta{ResourceVersion: scale.ResourceVersion},
		ColumnDefinitions: scaleColumns,
		Rows:              []metav1.TableRow{row},
	}, nil
}

func partialScale(accepted negotiate.Accepted, scale *autoscalingv1.Scale) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/" + accepted.AsVersion},
		ObjectMeta: scale.ObjectMeta,
	}
}

func (h *Handler) updateScale(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	in, err := h.incoming(r, info, s, updateOptions)
	if err != nil {
		return err
	}
	sub := s.Kind.Subresource(info.Subresource)
	sent, err := decodeWith(s.subDecoder(sub, registry.NewScale, "autoscaling.Scale"), r, in)
	switch {
	case err != nil && s.Kind.Trees():
		// Where the reference would word what is wrong, it fails to name a Scale's kind.
		return kerrors.NewBadRequest(`no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"`)
	case err != nil:
		return err
	}
	noteSent(r, scaleKind, sent)
	if err := checkName(sent, info); err != nil {
		return err
	}
	return h.changeScale(w, r, info, s, in, func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
		return sent.(*autoscalingv1.Scale), nil
	})
}

// changeScale stores the Scale that change makes of the current one.
func (h *Handler) changeScale(w http.ResponseWriter, r *http.Request, info *request.Info, s *served, in incoming, change func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error)) error {
	sub := s.Kind.Subresource(info.Subresource)
	result, err := s.Update(r.Context(), info.Namespace, info.Name, h.updateOptions(info, s, sub, in.writeOptions), func(c *registry.Current) (registry.Object, error) {
		obj, err := c.Decode()
		if err != nil {
			return nil, err
		}
		before, err := scaleToChange(sub.Scale, sub, obj)
		if err != nil {
			return nil, err
		}
		scale, err := change(before)
		if err != nil {
			return nil, err
		}
		if sub.Scale.Has != nil && scale.Spec.Replicas == unsetReplicas {
			return nil, kerrors.NewBadRequest(fmt.Sprintf("the spec replicas field %q cannot be empty", "."+strings.Join(sub.Scale.Path, ".")))
		}
		if scale.Spec.Replicas < 0 && !s.Kind.Trees() {
			return nil, kerrors.NewInvalid(scaleKind.GroupKind(), info.Name, field.ErrorList{
				field.Invalid(field.NewPath("spec", "replicas"), scale.Spec.Replicas, "must be greater than or equal to 0").WithOrigin("minimum"),
			})
		}
		live, err := c.Decode()
		if err != nil {
			return nil, err
		}
		if err := sub.Scale.Set(obj, scale.Spec.Replicas); err != nil {
			return nil, err
		}
		if scale.ResourceVersion != "" || !s.Kind.Trees() {
			obj.SetResourceVersion(scale.ResourceVersion)
		}
		if scale.UID != "" && scale.UID != obj.GetUID() {
			return nil, s.UIDMismatch(c.Object, scale.UID, obj.GetUID())
		}
		return h.ownScale(s, sub, live, obj, scale.Spec.Replicas, in.manager)
	})
	if err != nil {
		return err
	}
	return s.writeScale(w, r, info, in.accepted, result.Object)
}

// ownScale records who set the replicas, as the managedFields of a Scale would: there
// no replicas are a field that is not set, which takes it from every owner, and as
// long as nobody owns the field, changes are not followed.
func (h *Handler) ownScale(s *served, sub *registry.Subresource, live, obj registry.Object, replicas int32, manager string) (registry.Object, error) {
	path := replicasPath(sub.Scale)
	obj.SetManagedFields(slices.Clone(live.GetManagedFields()))
	owned, err := disown(obj, path, replicas == 0)
	if err != nil || !owned || replicas == 0 {
		return obj, err
	}
	if obj, err = h.own(s, sub.Name, live, obj, manager); err == nil {
		stampScale(obj, live)
	}
	return obj, err
}

func replicasPath(s *registry.Scale) fieldpath.Path {
	names := s.Path
	if names == nil {
		names = []string{"spec", "replicas"}
	}
	var path fieldpath.Path
	for _, name := range names {
		path = append(path, fieldpath.PathElement{FieldName: &name})
	}
	return path
}

// disown says whether anybody owns a field, and takes it from its owners if remove is
// set.
func disown(obj registry.Object, path fieldpath.Path, remove bool) (owned bool, err error) {
	var kept []metav1.ManagedFieldsEntry
	for _, e := range obj.GetManagedFields() {
		var fields fieldpath.Set
		if e.FieldsV1 != nil {
			if err := fields.FromJSON(bytes.NewReader(e.FieldsV1.Raw)); err != nil {
				return false, err
			}
		}
		if !fields.Has(path) {
			kept = append(kept, e)
			continue
		}
		owned = true
		rest := fields.Difference(fieldpath.NewSet(path))
		if rest.Empty() {
			continue
		}
		text, err := rest.ToJSON()
		if err != nil {
			return false, err
		}
		e.FieldsV1 = &metav1.FieldsV1{Raw: text}
		kept = append(kept, e)
	}
	if remove {
		obj.SetManagedFields(kept)
	}
	return owned, nil
}

// unsetReplicas stands for replicas that are not set.
const unsetReplicas = math.MinInt32

// scaleToChange is the Scale that a change begins with.
func scaleToChange(s *registry.Scale, sub *registry.Subresource, obj registry.Object) (*autoscalingv1.Scale, error) {
	if s.Check != nil {
		if err := s.Check(obj); err != nil {
			return nil, err
		}
	}
	scale := scaleOf(sub, obj)
	if s.Has != nil && !s.Has(obj) {
		scale.Spec.Replicas = unsetReplicas
	}
	return scale, nil
}

func (h *Handler) patchScale(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	in, err := h.incomingPatch(r, info, s)
	if err != nil {
		return err
	}
	if in.patch == types.ApplyYAMLPatchType {
		return h.applyScale(w, r, info, s, in)
	}
	var warnings []string
	err = h.changeScale(w, r, info, s, in, func(before *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
		after := &autoscalingv1.Scale{}
		before.SetGroupVersionKind(scaleKind)
		var err error
		if in.patch == types.StrategicMergePatchType {
			warnings, err = patch.Strategic(before, after, in.body, in.validation)
		} else {
			warnings, err = patchScaleDocument(before, after, in)
		}
		if err == nil {
			err = checkName(after, info)
		}
		for _, text := range warnings {
			request.Warn(r.Context(), text)
		}
		return after, err
	})
	return err
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

// applyScale applies a Scale: the configuration of the parent that sets as much.
func (h *Handler) applyScale(w http.ResponseWriter, r *http.Request, info *request.Info, s *served, in incoming) error {
	configuration, err := patch.Apply(in.body, in.validation)
	if err != nil {
		return err
	}
	sub := s.Kind.Subresource(info.Subresource)
	m, err := h.manager(s, info.Subresource)
	if err != nil {
		return err
	}
	result, err := s.Update(r.Context(), info.Namespace, info.Name, h.updateOptions(info, s, sub, in.writeOptions), func(c *registry.Current) (registry.Object, error) {
		live, err := c.Decode()
		if err != nil {
			return nil, err
		}
		parent, err := s.parentConfiguration(configuration.Object)
		if err != nil {
			return nil, err
		}
		force := in.force != nil && *in.force
		obj, err := m.Apply(live, parent, in.manager, force, h.o.Now())
		if err != nil {
			return nil, err
		}
		stampScale(obj, live)
		return obj, checkName(obj, info)
	})
	if err != nil {
		return err
	}
	return s.writeScale(w, r, info, in.accepted, result.Object)
}

// parentConfiguration turns an applied Scale into the applied parent.
func (s *served) parentConfiguration(scale map[string]any) (map[string]any, error) {
	if gvk := schema.FromAPIVersionAndKind(text(scale["apiVersion"]), text(scale["kind"])); gvk != scaleKind {
		return nil, kerrors.NewBadRequest("invalid object type: " + gvk.String())
	}
	parent := map[string]any{"apiVersion": s.gvk.GroupVersion().String(), "kind": s.gvk.Kind}
	if metadata, ok := scale["metadata"]; ok {
		parent["metadata"] = metadata
	}
	spec, ok := scale["spec"]
	path := s.Kind.Subresource("scale").Scale.Path
	switch {
	case !ok:
	case path == nil:
		parent["spec"] = spec
	default:
		replicas, found, err := unstructured.NestedFieldNoCopy(scale, "spec", "replicas")
		if err != nil || !found {
			break
		}
		if err := unstructured.SetNestedField(parent, replicas, path...); err != nil {
			return nil, kerrors.NewBadRequest(err.Error())
		}
	}
	return parent, nil
}

// stampScale gives the entries made through the scale subresource the time that
// the reference gives them: that of the entry before, and none to a new one.
func stampScale(obj, live registry.Object) {
	times := map[managed.EntryKey]*metav1.Time{}
	for _, e := range live.GetManagedFields() {
		times[managed.KeyOf(&e)] = e.Time
	}
	entries := slices.Clone(obj.GetManagedFields())
	for i := range entries {
		if entries[i].Subresource == "scale" {
			entries[i].Time = times[managed.KeyOf(&entries[i])]
		}
	}
	managed.Sort(entries)
	obj.SetManagedFields(entries)
}

func text(v any) string { s, _ := v.(string); return s }
