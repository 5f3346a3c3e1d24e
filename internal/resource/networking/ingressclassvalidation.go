package networking

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	apipath "k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/names"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

func validateIngressClass(c *networkingv1.IngressClass) field.ErrorList {
	const longestController = 250
	path := field.NewPath("spec", "controller")
	var errs field.ErrorList
	if len(c.Spec.Controller) > longestController {
		errs = append(errs, field.TooLong(path, c.Spec.Controller, longestController))
	}
	errs = append(errs, validation.IsDomainPrefixedPath(path.K8s(), c.Spec.Controller)...)
	if p := c.Spec.Parameters; p != nil {
		errs = append(errs, validateIngressClassParameters(p, field.NewPath("spec", "parameters"))...)
	}
	return errs
}

func validateIngressClassUpdate(c, old *networkingv1.IngressClass) field.ErrorList {
	return append(validateIngressClass(c),
		declare.Immutable(c.Spec.Controller, old.Spec.Controller, field.NewPath("spec", "controller"))...)
}

// validateIngressClassParameters validates spec.parameters, which names the object with the parameters of a controller.
func validateIngressClassParameters(
	p *networkingv1.IngressClassParametersReference, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	if g := p.APIGroup; g != nil {
		for _, message := range names.IsDNS1123Subdomain(*g) {
			errs = append(errs, field.Invalid(path.Child("apiGroup"), *g, message))
		}
	}
	errs = append(errs, requirePathSegment(p.Kind, path.Child("kind"))...)
	errs = append(errs, requirePathSegment(p.Name, path.Child("name"))...)
	return append(errs, validateParametersScope(p, path)...)
}

func requirePathSegment(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	for _, message := range apipath.IsValidPathSegmentName(value) {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

// validateParametersScope requires a namespace with the scope Namespace, and none with the scope Cluster.
func validateParametersScope(p *networkingv1.IngressClassParametersReference, path *field.Path) field.ErrorList {
	const cluster = networkingv1.IngressClassParametersReferenceScopeCluster
	const namespace = networkingv1.IngressClassParametersReferenceScopeNamespace
	if p.Scope == nil {
		return field.ErrorList{field.Required(path.Child("scope"), "")}
	}
	if scopes := []string{cluster, namespace}; !slices.Contains(scopes, *p.Scope) {
		return field.ErrorList{field.NotSupported(path.Child("scope"), *p.Scope, scopes)}
	}
	path = path.Child("namespace")
	switch {
	case *p.Scope == namespace && p.Namespace == nil:
		return field.ErrorList{field.Required(path, "`parameters.scope` is set to 'Namespace'")}
	case *p.Scope == cluster && p.Namespace != nil:
		return field.ErrorList{field.Forbidden(path, "`parameters.scope` is set to 'Cluster'")}
	case p.Namespace == nil:
		return nil
	}
	var errs field.ErrorList
	for _, message := range apivalidation.ValidateNamespaceName(*p.Namespace, false) {
		errs = append(errs, field.Invalid(path, *p.Namespace, message))
	}
	return errs
}
