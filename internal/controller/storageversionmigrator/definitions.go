package storageversionmigrator

import (
	"context"
	"fmt"
	"slices"

	migrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// definitionManager is the field manager of the changes that the controller makes to definitions.
const definitionManager = "migration-runner-controller"

var definitions = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

type (
	definition          = apiextensionsv1.CustomResourceDefinition
	definitionCondition = apiextensionsv1.CustomResourceDefinitionCondition
)

// markDefinition gives the definition of a custom resource the condition StorageMigrating. Its observedGeneration
// tells for which generation of the definition, and so for which storage version, the migration is. Because this
// server writes the definition, it knows its latest state, and does not migrate the objects to an earlier storage
// version.
func (c *Controller) markDefinition(ctx context.Context, m *migration) error {
	return c.updateDefinition(ctx, m, func(d *definition) {
		c.setDefinition(d, apiextensionsv1.ConditionTrue, "MigrationRunning", fmt.Sprintf("Migration %s is running", m.Name))
	})
}

// unmarkDefinition sets the condition StorageMigrating to False. After a success all objects are stored in the
// storage version. So it removes all other versions from status.storedVersions, unless the definition has changed
// meanwhile.
func (c *Controller) unmarkDefinition(ctx context.Context, m *migration) error {
	return c.updateDefinition(ctx, m, func(d *definition) {
		if !isTrue(m, migrationv1.MigrationSucceeded) {
			c.setDefinition(d, apiextensionsv1.ConditionFalse, "MigrationFailed", "The migration has failed")
			return
		}
		message := "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
		if i := migratingIndex(d); i >= 0 && d.Status.Conditions[i].ObservedGeneration == d.Generation {
			message = "The migration has succeeded and the stored versions have been updated"
			if v := slices.IndexFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
				return v.Storage
			}); v >= 0 {
				d.Status.StoredVersions = []string{d.Spec.Versions[v].Name}
			}
		}
		c.setDefinition(d, apiextensionsv1.ConditionFalse, "MigrationSucceeded", message)
	})
}

// updateDefinition changes the status of the definition of the resource, if it has one.
func (c *Controller) updateDefinition(ctx context.Context, m *migration, change func(*definition)) error {
	r := m.Spec.Resource
	if r.Group == "" {
		return nil
	}
	_, err := c.Client.As(definitionManager).Update(ctx, client.UpdateRequest{
		Ref: client.Ref{Resource: definitions, Name: r.Resource + "." + r.Group}, Subresource: "status",
		Change: func(o registry.Object) error {
			change(o.(*definition))
			return nil
		},
	})
	if kerrors.IsNotFound(err) {
		return nil
	}
	return err
}

// migratingIndex returns the index of the condition StorageMigrating, -1 if there is none.
func migratingIndex(d *definition) int {
	return slices.IndexFunc(d.Status.Conditions,
		func(c definitionCondition) bool { return c.Type == apiextensionsv1.StorageMigrating })
}

// setDefinition sets the condition StorageMigrating.
func (c *Controller) setDefinition(d *definition, s apiextensionsv1.ConditionStatus, reason, message string) {
	condition := definitionCondition{
		Type: apiextensionsv1.StorageMigrating, Status: s, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(c.Now()), ObservedGeneration: d.Generation,
	}
	if i := migratingIndex(d); i >= 0 {
		d.Status.Conditions[i] = condition
	} else {
		d.Status.Conditions = append(d.Status.Conditions, condition)
	}
}
