package write

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	apipath "k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/names"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// validate checks the object by the rules of all objects and of its kind.
func (a *attempt) validate(ctx context.Context) error {
	errs := rules{a.change(), a.p}.faults(ctx)
	if len(errs) == 0 {
		return nil
	}
	if !a.Target.Metadata().Repeated {
		errs = onlyOnce(errs)
	}
	kind := a.Target.Kind.GroupKind()
	if a.Target.Kind.Unstructured() {
		// A custom resource may have another group or kind than its resource.
		kind = a.obj.GetObjectKind().GroupVersionKind().GroupKind()
	}
	return kerrors.NewInvalid(kind, a.obj.GetName(), errs)
}

// onlyOnce removes each error with the same text as an earlier one. It does not remove an error that ends the
// validation of its field (ShortCircuit).
func onlyOnce(errs field.ErrorList) field.ErrorList {
	said := map[string]bool{}
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		text := err.Error()
		before := said[text] && !err.ShortCircuit
		said[text] = true
		return before
	})
}

// rules check a change by the rules of all objects and of its kind.
type rules struct {
	change
	p *Pipeline // has the objects and the permissions that rules ask for
}

// faults returns all errors of the object.
func (r rules) faults(ctx context.Context) field.ErrorList {
	if r.old == nil {
		return r.faultsOfNew(ctx)
	}
	return r.faultsOfUpdate(ctx)
}

// faultsInNamespace returns the errors of the object in its namespace. old is nil for a create. The namespace is
// read only if the rules of the kind call the function, which most objects do not need.
func (r rules) faultsInNamespace(ctx context.Context, old registry.Object) field.ErrorList {
	validate := r.strategy().ValidateNamespace
	if validate == nil {
		return nil
	}
	return validate(r.obj, old, func() (map[string]string, error) {
		ns, err := r.p.Registry.Get(ctx, schema.GroupResource{Resource: "namespaces"}, "", r.obj.GetNamespace())
		if err != nil {
			return nil, err
		}
		return ns.GetLabels(), nil
	})
}

// faultsOfPermissions returns an error for each change that the user may not make. The server itself may make all
// changes; its writes have no user.
func (r rules) faultsOfPermissions(ctx context.Context) field.ErrorList {
	validate, user := r.strategy().ValidatePermissions, request.UserFrom(ctx)
	if validate == nil || r.amends || r.p.Authorizer == nil || user == nil {
		return nil
	}
	return validate(ctx, r.obj, r.old, func(info *request.Info) error {
		return authz.CheckPermission(ctx, r.p.Authorizer, authz.Attributes{User: user, Info: info})
	})
}

// faultsOfUpdate returns the errors of an update. An Amend is not checked by the ValidateUpdate of the kind: the
// server itself makes the change.
func (r rules) faultsOfUpdate(ctx context.Context) field.ErrorList {
	errs := r.validateMetaUpdate(r.obj, r.old)
	errs = append(errs, r.faultsInNamespace(ctx, r.old)...)
	errs = append(errs, r.faultsOfPermissions(ctx)...)
	s, sub := r.strategy(), r.sub
	switch {
	case r.amends:
	case r.ofMain() && s.ValidateUpdate != nil:
		errs = append(errs, s.ValidateUpdate(ctx, r.obj, r.old)...)
	case sub != nil && sub.Status && s.ValidateStatusUpdate != nil:
		errs = append(errs, s.ValidateStatusUpdate(ctx, r.obj, r.old)...)
	case sub != nil && sub.Update != nil && sub.Update.Validate != nil:
		errs = append(errs, sub.Update.Validate(r.obj, r.old)...)
	}
	return errs
}

// faultsOfNew returns the errors of a new object, in the order of kube-apiserver: clients show them in this
// order. The path segments are checked only if nothing else is wrong. They matter for kinds whose own rule for
// names is weaker.
func (r rules) faultsOfNew(ctx context.Context) field.ErrorList {
	errs := r.faultsInNamespace(ctx, nil)
	last := r.target.Metadata().Last
	if r.rightType(r.obj) && !last {
		errs = append(errs, r.validateMeta(r.obj)...)
	}
	if validate := r.strategy().ValidateCreate; validate != nil {
		errs = append(errs, validate(ctx, r.obj, nil)...)
	}
	if len(errs) == 0 && last {
		errs = r.validateMeta(r.obj)
	}
	if len(errs) == 0 {
		errs = validatePathSegments(r.obj)
	}
	return errs
}

func (r rules) validateMeta(obj registry.Object) field.ErrorList {
	validate := validation.ValidateNameFunc(names.NameIsDNSSubdomain)
	if own := r.target.Metadata().ValidateName; own != nil {
		validate = own
	}
	return r.validateMetaBy(validate, obj)
}

// validateMetaBy validates the metadata of an object with a rule for its name.
func (r rules) validateMetaBy(validate validation.ValidateNameFunc, obj registry.Object) field.ErrorList {
	path := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessor(metaOf(obj), r.target.Kind.Namespaced, validate, path)
	return append(errs, r.validateFinalizers(obj, path)...)
}

// validatePathSegments checks that names can be a segment of a path, even if the kind allows others: they are part of
// URLs and of keys in the store. So "a/b", "..", and "100%" are refused for every kind.
func validatePathSegments(obj registry.Object) field.ErrorList {
	meta := field.NewPath("metadata")
	var errs field.ErrorList
	for _, message := range apipath.ValidatePathSegmentName(obj.GetGenerateName(), true) {
		errs = append(errs, field.Invalid(meta.Child("generateName"), obj.GetGenerateName(), message))
	}
	for _, message := range apipath.ValidatePathSegmentName(obj.GetName(), false) {
		errs = append(errs, field.Invalid(meta.Child("name"), obj.GetName(), message))
	}
	// A key of the store ends at a zero byte. kube-apiserver takes one in the names of roles and their bindings.
	if strings.Contains(obj.GetName(), "\x00") {
		errs = append(errs, field.Invalid(meta.Child("name"), obj.GetName(), "may not contain a zero byte"))
	}
	return errs
}

// rightType reports whether the object has the apiVersion and kind of its resource, which custom resources may lack.
func (r rules) rightType(obj registry.Object) bool {
	rightType := r.strategy().RightType
	return rightType == nil || rightType(obj)
}

// validateFinalizers returns an error for each finalizer that has no domain and is not a standard one, unless the
// kind allows any.
func (r rules) validateFinalizers(obj registry.Object, path *field.Path) field.ErrorList {
	if r.target.Metadata().AnyFinalizer {
		return nil
	}
	return nonstandardFinalizers(obj, path)
}

// nonstandardFinalizers returns an error for each finalizer without a domain that is not a standard one.
func nonstandardFinalizers(obj registry.Object, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range obj.GetFinalizers() {
		if !strings.Contains(name, "/") && !standardFinalizers[name] {
			errs = append(
				errs,
				field.Invalid(path.Child("finalizers").Index(i), name, "name is neither a standard finalizer name nor is it fully qualified"),
			)
		}
	}
	return errs
}

// standardFinalizers are the finalizers without a domain. Every other finalizer needs a domain:
// "example.com/cleanup" is accepted, and "cleanup" is refused for all kinds except those with AnyFinalizer.
var standardFinalizers = map[string]bool{
	string(corev1.FinalizerKubernetes): true, metav1.FinalizerOrphanDependents: true,
	metav1.FinalizerDeleteDependents: true,
}

// validateMetaUpdate checks the metadata of an update by the generic rules, and again by those that the kind's own
// validation repeats.
func (r rules) validateMetaUpdate(obj, old registry.Object) field.ErrorList {
	path := field.NewPath("metadata")
	meta := metaOf(obj)
	// The name cannot change, so only the weakest rule applies to it here. Kinds with MetaWhole or MetaNew check it
	// again by their own rule below.
	errs := validation.ValidateObjectMetaAccessor(meta, r.target.Kind.Namespaced, apipath.ValidatePathSegmentName, path)
	kept := validation.ValidateObjectMetaAccessorUpdate(meta, old, path)
	errs = append(errs, kept...)
	checks := r.target.Metadata().OnUpdate
	if sub := r.sub; sub != nil && (sub.Name == "status" || sub.Update != nil && sub.Update.StatusMeta) {
		checks = r.target.Metadata().OnStatusUpdate
	}
	if checks == registry.MetaNothing || !r.rightType(obj) {
		return errs
	}
	// kube-apiserver checks metadata for every kind, and the validation of many kinds does it again. Errors are
	// then found twice; onlyOnce removes the second ones for kinds whose errors are not Repeated.
	if checks == registry.MetaChanges || checks == registry.MetaWhole {
		errs = append(errs, kept...)
		errs = append(errs, r.validateFinalizers(obj, path)...)
	}
	switch checks {
	case registry.MetaWhole, registry.MetaNew:
		errs = append(errs, r.validateMeta(obj)...)
	case registry.MetaNewUnnamed:
		errs = append(errs, r.validateMetaBy(apipath.ValidatePathSegmentName, obj)...)
	}
	return errs
}
