package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// PodTemplateWarnings are the warnings for a pod template at path; old is nil on
// create.
func PodTemplateWarnings(path *field.Path, new, old *corev1.PodTemplateSpec) []string {
	return nil
}
