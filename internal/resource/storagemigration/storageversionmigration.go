// Package storagemigration declares the kinds of the storagemigration.k8s.io API group.
package storagemigration

import (
	migrationv1 "k8s.io/api/storagemigration/v1"
	migrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// Kinds returns the kinds of the group in the order of discovery.
func Kinds(gates features.Gates) []*registry.Kind {
	if !gates.Enabled(features.StorageVersionMigrator) {
		return nil
	}
	return []*registry.Kind{storageVersionMigration()}
}

type migration = migrationv1.StorageVersionMigration

func storageVersionMigration() *registry.Kind {
	name := metav1.ObjectMeta{}.SwaggerDoc()["name"]
	return &registry.Kind{
		Names: registry.Names{
			Group: "storagemigration.k8s.io", Package: "storagemigration", Resource: "storageversionmigrations",
			Name: "StorageVersionMigration",
		},
		Versions: []registry.Version{
			declare.Version[migration]("v1", nil),
			declare.SameMessage[migrationv1beta1.StorageVersionMigration, migration]("v1beta1", nil),
		},
		Storage: registry.Storage{
			Version: "v1", GroupVersion: "storagemigration.k8s.io/v1beta1", Path: "storageversionmigrations",
		},
		Metadata:     registry.Metadata{OnUpdate: registry.MetaWhole},
		Subresources: []registry.Subresource{declare.Status("spec", "metadata")},
		Strategy: registry.Strategy[*migration]{
			StatusKeepsMeta: true,
			Validate: func(m *migration) field.ErrorList {
				return validateResource(m.Spec.Resource, field.NewPath("spec", "resource"))
			},
			ValidateUpdate: func(m, old *migration) field.ErrorList {
				return declare.Immutable(m.Spec, old.Spec, field.NewPath("spec"))
			},
			ValidateStatusUpdate: func(m, old *migration) field.ErrorList {
				return validateStatus(&m.Status, &old.Status, field.NewPath("status"))
			},
		}.Untyped(),
		Table: registry.Table[*migration]{
			Columns: []metav1.TableColumnDefinition{
				table.Column("Name", "string", name), // without the format of most tables
				table.Column("Resource", "string", "GroupResource to migrate"),
				table.Column("Status", "string", "Status of the migration"),
			},
			Cells: func(m *migration) []any {
				r := m.Spec.Resource
				return []any{m.Name, r.String(), state(&m.Status)}
			},
		}.Untyped(),
	}
}

// state returns the last condition that is true and says how far the migration is.
func state(s *migrationv1.StorageVersionMigrationStatus) string {
	out := "Unknown"
	for _, c := range s.Conditions {
		switch migrationv1.MigrationConditionType(c.Type) {
		case migrationv1.MigrationRunning, migrationv1.MigrationFailed, migrationv1.MigrationSucceeded:
			if c.Status == metav1.ConditionTrue {
				out = c.Type
			}
		}
	}
	return out
}

// validateResource validates the resource to migrate. It has no version, because a migration writes the objects
// again in the version that the server stores them in. The resource does not have to exist.
func validateResource(r metav1.GroupResource, path *field.Path) field.ErrorList {
	errs := field.RequiredIf(r.Resource == "", path.Child("resource"), "resource is required to be set")
	if r.Resource != "" {
		errs = field.Joined(path.Child("resource"), r.Resource, "", validation.IsDNS1035Label(r.Resource))
	}
	if r.Group != "" {
		errs = append(errs, field.Joined(path.Child("group"), r.Group, "", validation.IsDNS1123Subdomain(r.Group))...)
	}
	return errs
}

// validateStatus validates what the controller of migrations reports. resourceVersion is that of the resource at
// the time when the controller first saw the migration. It and the two final conditions cannot be taken back.
func validateStatus(s, old *migrationv1.StorageVersionMigrationStatus, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	version, conditions := path.Child("resourceVersion"), path.Child("conditions")
	if v := s.ResourceVersion; v != "" {
		// The comparison with itself only parses the text: a positive decimal number without leading zeros.
		if _, err := resourceversion.CompareResourceVersion(v, v); err != nil {
			errs = append(errs, field.Invalid(version, v, err.Error()))
		}
	}
	errs = append(errs, metav1validation.ValidateConditions(s.Conditions, conditions.K8s())...)
	errs = append(errs, field.InvalidIf(old.ResourceVersion != "" && old.ResourceVersion != s.ResourceVersion, version,
		s.ResourceVersion, "field is immutable")...)
	is := func(s *migrationv1.StorageVersionMigrationStatus, t migrationv1.MigrationConditionType) bool {
		return meta.IsStatusConditionTrue(s.Conditions, string(t))
	}
	const succeeded, failed = migrationv1.MigrationSucceeded, migrationv1.MigrationFailed
	wrong := func(found bool, detail string) field.ErrorList {
		return field.InvalidIf(found, conditions, s.Conditions, detail)
	}
	return field.Join(errs,
		wrong(is(s, succeeded) && is(s, failed), "Both success and failed conditions cannot be true at the same time"),
		wrong(is(old, succeeded) && !is(s, succeeded), "Success condition cannot be set to false once it is true"),
		wrong(is(old, failed) && !is(s, failed), "Failed condition cannot be set to false once it is true"))
}
