package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func validateNode(n *corev1.Node) field.ErrorList {
	errs := validateTaints(n.Spec.Taints, field.NewPath("metadata", "taints"))
	path := field.NewPath("spec", "podCIDRs")
	for i, cidr := range n.Spec.PodCIDRs {
		errs = append(errs, validation.IsValidCIDRForLegacyField(path.Index(i), cidr, false, nil)...)
	}
	if len(n.Spec.PodCIDRs) > 1 {
		dual, err := netutils.IsDualStackCIDRStrings(n.Spec.PodCIDRs)
		if err != nil {
			errs = append(errs, field.InternalError(path, internalCIDRError{err}))
		}
		if !dual || len(n.Spec.PodCIDRs) > 2 {
			errs = append(errs, field.Invalid(path, n.Spec.PodCIDRs, "may specify no more than one CIDR for each IP family"))
		}
	}
	return errs
}

type internalCIDRError struct{ error }

func (e internalCIDRError) Error() string {
	return "invalid PodCIDRs. failed to check with dual stack with error:" + e.error.Error()
}

func validateTaints(taints []corev1.Taint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	type key struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := map[key]bool{}
	for i, t := range taints {
		at := path.Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		errs = append(errs, invalid(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
		if t.Effect == "" {
			errs = append(errs, field.Required(at.Child("effect"), ""))
		} else {
			errs = append(errs, taintEffect(t.Effect, at.Child("effect"))...)
		}
		k := key{t.Key, t.Effect}
		if seen[k] {
			errs = append(errs, field.Duplicate(at, declare.Internal(t)))
		}
		seen[k] = true
	}
	return errs
}

func validateNodeUpdate(n, old *corev1.Node) field.ErrorList {
	path := field.NewPath("spec")
	// The reference checks the taints of an update twice.
	errs := append(validateNode(n), validateTaints(n.Spec.Taints, field.NewPath("metadata", "taints"))...)
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(n.Spec.PodCIDRs, old.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(path.Child("podCIDRs"), `node updates may not change podCIDR except from "" to valid`))
	}
	if old.Spec.ProviderID != "" && n.Spec.ProviderID != old.Spec.ProviderID {
		errs = append(errs, field.Forbidden(path.Child("providerID"), `node updates may not change providerID except from "" to valid`))
	}
	if n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		errs = append(errs, field.Forbidden(path.Child("externalID"), "may not be updated"))
	}
	return errs
}
