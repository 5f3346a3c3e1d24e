package storage

import (
	"maps"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

func validateVolumeAttributesClass(c *storagev1.VolumeAttributesClass) field.ErrorList {
	errs := validateDriver(c.DriverName, field.NewPath("driverName"))
	if len(c.Parameters) == 0 {
		return append(errs, field.Required(field.NewPath("parameters"), "must contain at least one key/value pair"))
	}
	return append(errs, validateParameters(c.Parameters, field.NewPath("parameters"))...)
}

// validateVolumeAttributesClassUpdate forbids all changes. The driver is told about new parameters only when a
// claim names another class, so volumes would not get a change of the class itself.
func validateVolumeAttributesClassUpdate(c, old *storagev1.VolumeAttributesClass) field.ErrorList {
	errs := validateVolumeAttributesClass(c)
	errs = append(errs, field.ForbiddenIf(c.DriverName != old.DriverName, field.NewPath("driverName"),
		"updates to driverName are forbidden.")...)
	return append(errs, field.ForbiddenIf(!maps.Equal(c.Parameters, old.Parameters), field.NewPath("parameters"),
		"updates to parameters are forbidden.")...)
}
