package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// validateIngressClass validates the controller, for example example.com/ingress-controller, and the reference to
// parameters. The limit of 250 characters is in the documentation of the field.
func validateIngressClass(c *networkingv1.IngressClass) field.ErrorList {
	const longestController = 250
	spec := field.NewPath("spec")
	path := spec.Child("controller")
	errs := field.MaxLength(path, c.Spec.Controller, longestController)
	errs = append(errs, validation.IsDomainPrefixedPath(path.K8s(), c.Spec.Controller)...)
	return append(errs, field.IfPresent(spec.Child("parameters"), c.Spec.Parameters, validateIngressClassParameters)...)
}

// validateIngressClassUpdate forbids another controller: each Ingress of the class would move to it. A new class
// is the way to do that. The parameters may change.
func validateIngressClassUpdate(c, old *networkingv1.IngressClass) field.ErrorList {
	return append(validateIngressClass(c),
		declare.Immutable(c.Spec.Controller, old.Spec.Controller, field.NewPath("spec", "controller"))...)
}

// validateIngressClassParameters validates spec.parameters, which names the object with the parameters of a controller.
func validateIngressClassParameters(
	p *networkingv1.IngressClassParametersReference, path *field.Path,
) field.ErrorList {
	errs := field.Optional(path.Child("apiGroup"), p.APIGroup, field.DNSSubdomain)
	errs = append(errs, field.NotEmptyAnd(path.Child("kind"), p.Kind, field.PathSegment)...)
	errs = append(errs, field.NotEmptyAnd(path.Child("name"), p.Name, field.PathSegment)...)
	return append(errs, validateParametersScope(p, path)...)
}

// validateParametersScope requires a namespace with the scope Namespace, and none with the scope Cluster.
func validateParametersScope(p *networkingv1.IngressClassParametersReference, path *field.Path) field.ErrorList {
	const cluster = networkingv1.IngressClassParametersReferenceScopeCluster
	const namespace = networkingv1.IngressClassParametersReferenceScopeNamespace
	if errs := field.MandatoryOneOf(path.Child("scope"), p.Scope, cluster, namespace); len(errs) > 0 {
		return errs
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
	return field.Messages(path, *p.Namespace, apivalidation.ValidateNamespaceName(*p.Namespace, false))
}
