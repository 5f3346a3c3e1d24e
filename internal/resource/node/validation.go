package node

import (
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

func validateRuntimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	errs := field.NotEmptyAnd(field.NewPath("handler"), c.Handler, field.DNSLabel)
	if o := c.Overhead; o != nil {
		limits := &corev1.ResourceRequirements{Limits: o.PodFixed}
		errs = append(errs, core.ValidateResourceRequirements(limits, nil, field.NewPath("overhead"))...)
	}
	if s := c.Scheduling; s != nil {
		path := field.NewPath("scheduling")
		errs = append(errs, metav1validation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector").K8s())...)
		errs = append(errs, core.ValidateTolerations(s.Tolerations, path.Child("tolerations"))...)
		errs = append(errs, differentTolerations(s.Tolerations, path.Child("tolerations"))...)
	}
	return errs
}

func validateRuntimeClassUpdate(c, old *nodev1.RuntimeClass) field.ErrorList {
	return append(validateRuntimeClass(c), declare.Immutable(c.Handler, old.Handler, field.NewPath("handler"))...)
}

// differentTolerations returns an error for each toleration that is there twice, for whatever number of seconds.
func differentTolerations(list []corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		for j := range i {
			if list[i].MatchToleration(&list[j]) {
				errs = append(errs, field.Duplicate(path.Index(i), declare.Internal(list[i])))
				break
			}
		}
	}
	return errs
}
