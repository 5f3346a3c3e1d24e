package registry

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	apipath "k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/request"
)

func (r *Resource) validateMeta(obj Object) field.ErrorList {
	validate := validation.ValidateNameFunc(validation.NameIsDNSSubdomain)
	if r.Kind.ValidateName != nil {
		validate = r.Kind.ValidateName
	}
	path := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessor(metaOf(obj), r.Kind.Namespaced, validate, path)
	return append(errs, r.validateFinalizers(obj, path)...)
}

// validatePathSegments wants names that can stand in a path, whatever the kind allows in them: they are
// part of URLs and of keys in the store.
func validatePathSegments(obj Object) field.ErrorList {
	meta := field.NewPath("metadata")
	var errs field.ErrorList
	for _, message := range apipath.ValidatePathSegmentName(obj.GetGenerateName(), true) {
		errs = append(errs, field.Invalid(meta.Child("generateName"), obj.GetGenerateName(), message))
	}
	for _, message := range apipath.ValidatePathSegmentName(obj.GetName(), false) {
		errs = append(errs, field.Invalid(meta.Child("name"), obj.GetName(), message))
	}
	return errs
}

func (h *Hooks) rightType(obj Object) bool { return h.RightType == nil || h.RightType(obj) }

// validateFinalizers wants a domain in the names that are not standard.
func (r *Resource) validateFinalizers(obj Object, path *field.Path) field.ErrorList {
	if r.Kind.AnyFinalizer {
		return nil
	}
	var errs field.ErrorList
	for i, name := range obj.GetFinalizers() {
		if !strings.Contains(name, "/") && !standardFinalizers[name] {
			errs = append(errs, field.Invalid(path.Child("finalizers").Index(i), name, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

// standardFinalizers are those that need no domain.
var standardFinalizers = map[string]bool{
	string(corev1.FinalizerKubernetes): true, metav1.FinalizerOrphanDependents: true, metav1.FinalizerDeleteDependents: true,
}

// validateMetaUpdate checks an update's metadata: by the generic rules, and by
// those of them that the kind's own validation repeats.
func (r *Resource) validateMetaUpdate(obj, old Object) field.ErrorList {
	path := field.NewPath("metadata")
	meta, before := metaOf(obj), metaOf(old)
	errs := validation.ValidateObjectMetaAccessor(meta, r.Kind.Namespaced, anyName, path)
	kept := validation.ValidateObjectMetaAccessorUpdate(meta, before, path)
	errs = append(errs, kept...)
	if r.Kind.MetaOnUpdate == MetaNothing || !r.Kind.Hooks.rightType(obj) {
		return errs
	}
	errs = append(errs, kept...)
	errs = append(errs, r.validateFinalizers(obj, path)...)
	if r.Kind.MetaOnUpdate == MetaWhole {
		errs = append(errs, r.validateMeta(obj)...)
	}
	return errs
}

// anyName accepts every name: that of an existing object is what it is.
func anyName(string, bool) []string { return nil }

func (r *Resource) warn(ctx context.Context, obj, old Object) {
	if r.Kind.Hooks.Warn == nil {
		return
	}
	for _, w := range r.Kind.Hooks.Warn(ctx, obj, old) {
		request.Warn(ctx, w)
	}
}

// checkNamespace makes the object's namespace that of the request.
func (r *Resource) checkNamespace(namespace string, obj Object) error {
	switch {
	case !r.Kind.Namespaced:
		obj.SetNamespace("")
	case obj.GetNamespace() == namespace:
	case obj.GetNamespace() == "":
		obj.SetNamespace(namespace)
	default:
		return kerrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}
