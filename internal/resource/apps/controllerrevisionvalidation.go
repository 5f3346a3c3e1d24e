package apps

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// validateControllerRevision requires data that is a JSON object. Revisions that exist may have other data.
func validateControllerRevision(r *appsv1.ControllerRevision) field.ErrorList {
	errs := field.NonNegative(field.NewPath("revision"), r.Revision)
	data := field.NewPath("data")
	switch raw := r.Data.Raw; {
	case len(raw) == 0 && r.Data.Object == nil || string(raw) == "null":
		errs = append(errs, field.Required(data, "data is mandatory"))
	case r.Data.Object == nil && raw[0] != '{':
		errs = append(errs, field.Required(data, "data must be a valid JSON object"))
	}
	return errs
}

// validateControllerRevisionUpdate forbids changes of data: a rollback restores it. revision may change, because
// after a rollback the controller gives the old ControllerRevision the highest number instead of creating a copy.
func validateControllerRevisionUpdate(r, old *appsv1.ControllerRevision) field.ErrorList {
	errs := field.NonNegative(field.NewPath("revision"), r.Revision)
	return append(errs, declare.Immutable(r.Data, old.Data, field.NewPath("data"))...)
}
