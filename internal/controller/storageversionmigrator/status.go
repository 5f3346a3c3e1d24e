package storageversionmigrator

import (
	"context"
	"errors"

	migrationv1 "k8s.io/api/storagemigration/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

type status = migrationv1.StorageVersionMigrationStatus

// errChanged is the error of an update of a migration that was deleted, or that another client has ended. The
// event of that change adds the resource to the queue again.
var errChanged = errors.New("the migration was deleted or has ended")

// runningText and unhandled begin messages of conditions.
const (
	runningText = "The migration is running"
	unhandled   = "migration encountered unhandled error: "
)

func isTrue(m *migration, t migrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(t))
}

// ended reports whether a migration has succeeded or failed.
func ended(m *migration) bool {
	return isTrue(m, migrationv1.MigrationSucceeded) || isTrue(m, migrationv1.MigrationFailed)
}

func running(message string) metav1.Condition {
	return metav1.Condition{
		Type: string(migrationv1.MigrationRunning), Status: metav1.ConditionTrue, Reason: "MigrationRunning", Message: message,
	}
}

func failed(message string) metav1.Condition {
	return metav1.Condition{
		Type: string(migrationv1.MigrationFailed), Status: metav1.ConditionTrue, Reason: "StorageVersionMigrationFailed",
		Message: message,
	}
}

func (c *Controller) set(s *status, condition metav1.Condition) {
	condition.LastTransitionTime = metav1.NewTime(c.Now())
	meta.SetStatusCondition(&s.Conditions, condition)
}

// update changes the status of a migration and returns the new state. The error is errChanged if the migration was deleted, or
// if somebody else has ended it.
func (c *Controller) update(ctx context.Context, m *migration, change func(*status)) (*migration, error) {
	o, err := c.Client.Update(ctx, client.UpdateRequest{
		Ref: client.Ref{Resource: Resource, Name: m.Name}, Subresource: "status",
		Change: func(o registry.Object) error {
			latest := o.(*migration)
			if latest.UID != m.UID || ended(latest) != ended(m) {
				return errChanged
			}
			change(&latest.Status)
			return nil
		},
	})
	if kerrors.IsNotFound(err) {
		return nil, errChanged
	}
	if err != nil {
		return nil, err
	}
	return o.(*migration), nil
}
