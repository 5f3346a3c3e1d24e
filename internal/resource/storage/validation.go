package storage

import (
	"strings"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// The limits of the parameters of StorageClasses and VolumeAttributesClasses.
const (
	maxParameters     = 512
	maxParametersSize = 256 << 10 // bytes of all names and values
)

// validateDriver validates the name of a provisioner or of a driver, which is like the name of a label, in any case.
func validateDriver(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return metav1validation.ValidateLabelName(strings.ToLower(name), path.K8s())
}

// validateParameters validates the parameters that a driver gets.
// Their names have no form: each driver defines its own.
func validateParameters(parameters map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(parameters) > maxParameters {
		return append(errs, field.TooLong(path, "", maxParameters))
	}
	size := 0
	for name, value := range parameters {
		errs = append(errs, field.InvalidIf(name == "", path, name, "field can not be empty.")...)
		size += len(name) + len(value)
	}
	if size > maxParametersSize {
		errs = append(errs, field.TooLong(path, "", maxParametersSize))
	}
	return errs
}
