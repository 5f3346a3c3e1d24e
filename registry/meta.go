package registry

import (
	"context"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/request"
)

func (r *Resource) validateMeta(obj Object) field.ErrorList {
	validate := validation.ValidateNameFunc(validation.NameIsDNSSubdomain)
	if r.Kind.ValidateName != nil {
		validate = r.Kind.ValidateName
	}
	return validation.ValidateObjectMetaAccessor(obj, r.Kind.Namespaced, validate, field.NewPath("metadata"))
}

// validateMetaUpdate checks an update's metadata: by the generic rules, and by
// those of them that the kind's own validation repeats.
func (r *Resource) validateMetaUpdate(obj, old Object) field.ErrorList {
	path := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessor(obj, r.Kind.Namespaced, anyName, path)
	errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(obj, old, path)...)
	if r.Kind.MetaOnUpdate == MetaNothing {
		return errs
	}
	errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(obj, old, path)...)
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
