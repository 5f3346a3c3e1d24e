package policy

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// validatePodDisruptionBudget validates the spec. minAvailable "100%" and maxUnavailable 0 are valid: both forbid
// all evictions. An empty selector selects all pods of the namespace, and a missing one selects none.
// unhealthyPodEvictionPolicy is of KEP-3017; nil means IfHealthyBudget.
func validatePodDisruptionBudget(b *policyv1.PodDisruptionBudget) field.ErrorList {
	path, s := field.NewPath("spec"), &b.Spec
	var errs field.ErrorList
	if s.MinAvailable != nil && s.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(path, declare.Internal(s), "minAvailable and maxUnavailable cannot be both set"))
	}
	share := func(name string, v *intstr.IntOrString) {
		if v != nil {
			errs = append(errs, core.ValidateIntOrPercent(*v, path.Child(name))...)
			errs = append(errs, core.ValidateAtMost100Percent(*v, path.Child(name))...)
		}
	}
	share("minAvailable", s.MinAvailable)
	share("maxUnavailable", s.MaxUnavailable)
	errs = append(errs, field.LabelSelector(path.Child("selector"), s.Selector)...)
	return append(errs, field.OptionalOneOf(path.Child("unhealthyPodEvictionPolicy"), s.UnhealthyPodEvictionPolicy,
		policyv1.AlwaysAllow, policyv1.IfHealthyBudget)...)
}

// validateBudgetStatus validates a status that the disruption controller or the eviction subresource writes.
// desiredHealthy may be more than expectedPods, for example with minAvailable 5 and three pods.
func validateBudgetStatus(s *policyv1.PodDisruptionBudgetStatus, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateConditions(s.Conditions, path.Child("conditions").K8s())
	errs = append(errs, field.NonNegative(path.Child("disruptionsAllowed"), s.DisruptionsAllowed)...)
	errs = append(errs, field.NonNegative(path.Child("currentHealthy"), s.CurrentHealthy)...)
	errs = append(errs, field.NonNegative(path.Child("desiredHealthy"), s.DesiredHealthy)...)
	return append(errs, field.NonNegative(path.Child("expectedPods"), s.ExpectedPods)...)
}
