package node

import (
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/validate"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// validateNewRuntimeClass validates a new object. The handler is checked by the rule that the API type declares.
// On update it is checked by the older rule, as in kube-apiserver.
func validateNewRuntimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	var declared declare.Rules
	declare.Text(&declared, c.Handler, field.NewPath("handler").K8s(), validate.ShortName[string])
	return append(validateRuntimeClass(c), declared.Errs...)
}

// validateRuntimeClass validates all but the handler.
func validateRuntimeClass(c *nodev1.RuntimeClass) (errs field.ErrorList) {
	if o := c.Overhead; o != nil {
		// Overhead has the form of limits: names and quantities have the same rules.
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
	path := field.NewPath("handler")
	errs := field.NotEmptyAnd(path, c.Handler, field.DNSLabel)
	errs = append(errs, validateRuntimeClass(c)...)
	return append(errs, declare.Unchanged(c.Handler, old.Handler, path)...)
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
