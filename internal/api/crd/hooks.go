package crd

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// strategy returns the steps that this version of a custom resource adds to a write.
func (c *compiledVersion) strategy() registry.UntypedStrategy {
	type tree = *unstructured.Unstructured
	return registry.Strategy[tree]{
		PrepareCreate: func(obj tree) {
			if c.status {
				delete(obj.Object, "status")
			}
			obj.SetGeneration(1)
		},
		PrepareUpdate:       c.prepareUpdate,
		PrepareStatusUpdate: prepareStatus,
		RightType:           func(obj tree) bool { return len(c.validateType(obj)) == 0 },
		Warn:                finalizerWarnings,
		InContext: registry.InContext[tree]{
			ValidateCreate: c.validate, ValidateUpdate: c.validate, ValidateStatusUpdate: c.validateStatus,
		},
	}.Untyped()
}

// prepareUpdate keeps the old status if status is a subresource, and increments metadata.generation if anything but
// metadata changed.
func (c *compiledVersion) prepareUpdate(obj, old *unstructured.Unstructured) {
	if c.status {
		if status, ok := old.Object["status"]; ok {
			obj.Object["status"] = status
		} else {
			delete(obj.Object, "status")
		}
	}
	if !equality.Semantic.DeepEqual(withoutMetadata(obj), withoutMetadata(old)) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

func withoutMetadata(tree *unstructured.Unstructured) map[string]any {
	out := maps.Clone(tree.Object)
	delete(out, "metadata")
	return out
}

// prepareStatus sets everything except status and managedFields to the values of the old object.
func prepareStatus(obj, old *unstructured.Unstructured) {
	sent, _ := obj.Object["metadata"].(map[string]any)
	status, hasStatus := obj.Object["status"]
	restored := maps.Clone(old.Object)
	delete(restored, "status")
	oldMeta, _ := restored["metadata"].(map[string]any)
	meta := maps.Clone(oldMeta)
	delete(meta, "managedFields")
	restored["metadata"] = meta
	obj.Object = runtime.DeepCopyJSON(restored)
	if owned, ok := sent["managedFields"]; ok {
		obj.Object["metadata"].(map[string]any)["managedFields"] = owned
	}
	if hasStatus {
		obj.Object["status"] = status
	}
}

// validate returns the validation errors of an object. old is the object that it replaces, nil for a create.
func (c *compiledVersion) validate(ctx context.Context, obj, old *unstructured.Unstructured) field.ErrorList {
	errs := c.validateType(obj)
	if len(errs) == 0 {
		errs = c.schema.ValidateUpdate(nil, obj.Object, content(old))
		errs = append(errs, c.validateScale(obj, true)...)
	}
	errs = append(errs, c.schema.ValidateEmbedded(nil, obj.Object)...)
	errs = append(errs, c.schema.ValidateListsUpdate(nil, obj.Object, content(old))...)
	return append(errs, c.validateRules(ctx, errs, obj.Object, content(old))...)
}

func (c *compiledVersion) validateStatus(ctx context.Context, obj, old *unstructured.Unstructured) field.ErrorList {
	errs := c.validateType(obj)
	if len(errs) == 0 {
		if status, ok := obj.Object["status"]; ok && c.schema != nil {
			errs = append(
				errs, c.schema.Properties["status"].ValidateUpdate(field.NewPath("status"), status, old.Object["status"])...,
			)
		}
		errs = append(errs, c.validateScale(obj, false)...)
	}
	errs = append(errs, c.schema.ValidateListsUpdate(nil, obj.Object, content(old))...)
	return append(errs, c.validateRules(ctx, errs, obj.Object, content(old))...)
}

// content returns the fields of an object, nil for a nil object.
func content(obj *unstructured.Unstructured) any {
	if obj == nil {
		return nil
	}
	return obj.Object
}

// validateType checks that the object has the apiVersion and kind of the version.
func (c *compiledVersion) validateType(obj *unstructured.Unstructured) field.ErrorList {
	var errs field.ErrorList
	if kind := obj.GetKind(); kind != c.gvk.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), kind, "must be "+c.gvk.Kind))
	}
	if v := obj.GetAPIVersion(); v != c.gvk.GroupVersion().String() {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), v, "must be "+c.gvk.GroupVersion().String()))
	}
	return errs
}

// validateScale checks the fields that the scale subresource reads. If spec is true it also checks the replicas in
// spec.
func (c *compiledVersion) validateScale(obj *unstructured.Unstructured, spec bool) field.ErrorList {
	if c.scale == nil {
		return nil
	}
	var errs field.ErrorList
	if spec {
		errs = append(errs, validateReplicas(obj, c.scale.SpecReplicasPath)...)
	}
	errs = append(errs, validateReplicas(obj, c.scale.StatusReplicasPath)...)
	if path := c.scale.LabelSelectorPath; path != nil {
		if text, _, err := unstructured.NestedString(obj.Object, members(*path)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*path), text, err.Error()))
		}
	}
	return errs
}

func validateReplicas(obj *unstructured.Unstructured, path string) field.ErrorList {
	n, _, err := unstructured.NestedInt64(obj.Object, members(path)...)
	wrong := ""
	switch {
	case err != nil:
		wrong = err.Error()
	case n < 0:
		wrong = "should be a non-negative integer"
	case n > math.MaxInt32:
		wrong = fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(path), n, wrong)}
}

// finalizerWarnings returns the warnings about the names of finalizers that the write adds.
func finalizerWarnings(obj, old *unstructured.Unstructured) []string {
	var had []string
	if old != nil {
		had = old.GetFinalizers()
	}
	names := slices.DeleteFunc(
		slices.Clone(obj.GetFinalizers()), func(name string) bool { return slices.Contains(had, name) },
	)
	slices.Sort(names)
	var warnings []string
	for _, name := range slices.Compact(names) {
		for _, wrong := range validation.IsQualifiedName(name) {
			warnings = append(warnings, fmt.Sprintf("metadata.finalizers: %q: %s", name, wrong))
		}
		if strings.Contains(name, "/") || standardFinalizer(name) {
			continue
		}
		including := ""
		if strings.Contains(name, ".") {
			including = " including a path (/)"
		}
		warnings = append(
			warnings,
			fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name%s to avoid accidental conflicts with other finalizer writers", name, including),
		)
	}
	return warnings
}

func standardFinalizer(name string) bool {
	return name == metav1.FinalizerOrphanDependents || name == metav1.FinalizerDeleteDependents ||
		name == string(corev1.FinalizerKubernetes)
}

// preventsRules reports whether the CEL rules are skipped for an object with this error. With such an error, rules
// could meet values of unexpected types.
func preventsRules(err *field.Error) bool {
	switch err.Type {
	case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
		return true
	}
	return false
}

var rulesNotChecked = field.Invalid(
	nil, nil,
	"some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
)

// scaleSubresource returns the scale subresource of a version. paths has the path of spec.replicas in each version.
func scaleSubresource(
	scale *apiextensionsv1.CustomResourceSubresourceScale, paths map[string][]string,
) registry.Subresource {
	spec, status := members(scale.SpecReplicasPath), members(scale.StatusReplicasPath)
	var selector []string
	if scale.LabelSelectorPath != nil && *scale.LabelSelectorPath != "" {
		selector = members(*scale.LabelSelectorPath)
	}
	tree := func(obj registry.Object) map[string]any { return obj.(*unstructured.Unstructured).Object }
	check := func(obj registry.Object) error {
		for _, path := range [][]string{spec, status} {
			if _, _, err := unstructured.NestedInt64(tree(obj), path...); err != nil {
				return err
			}
		}
		if selector == nil {
			return nil
		}
		_, _, err := unstructured.NestedString(tree(obj), selector...)
		return err
	}
	return registry.Subresource{
		Name: "scale", Verbs: statusVerbs, GVK: scaleKind,
		Scale: &registry.Scale{
			Get: func(obj registry.Object) (int32, int32, string) {
				specReplicas, _, _ := unstructured.NestedInt64(tree(obj), spec...)
				statusReplicas, _, _ := unstructured.NestedInt64(tree(obj), status...)
				text := ""
				if selector != nil {
					text, _, _ = unstructured.NestedString(tree(obj), selector...)
				}
				return int32(specReplicas), int32(statusReplicas), text
			},
			Set: func(obj registry.Object, replicas int32) error {
				return unstructured.SetNestedField(tree(obj), int64(replicas), spec...)
			},
			Path: spec, Paths: paths, Check: check,
			Has: func(obj registry.Object) bool {
				_, found, _ := unstructured.NestedInt64(tree(obj), spec...)
				return found
			},
		},
	}
}
