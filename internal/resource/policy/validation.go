package policy

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

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

func validateBudgetStatus(s *policyv1.PodDisruptionBudgetStatus, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateConditions(s.Conditions, path.Child("conditions").K8s())
	errs = append(errs, field.NonNegative(path.Child("disruptionsAllowed"), s.DisruptionsAllowed)...)
	errs = append(errs, field.NonNegative(path.Child("currentHealthy"), s.CurrentHealthy)...)
	errs = append(errs, field.NonNegative(path.Child("desiredHealthy"), s.DesiredHealthy)...)
	return append(errs, field.NonNegative(path.Child("expectedPods"), s.ExpectedPods)...)
}
