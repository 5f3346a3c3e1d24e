package apiextensions

import (
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// startDeletion adds the finalizer that keeps a deleted definition until its objects are
// deleted. Package crd deletes them and removes the finalizer.
func startDeletion(d *definition) {
	if !slices.Contains(d.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
		d.Finalizers = append(slices.Clone(d.Finalizers), apiextensionsv1.CustomResourceCleanupFinalizer)
	}
	// The lists are cloned first, because copies of the object may share them. The condition is removed and
	// appended so that it is the last one.
	d.Status.Conditions = slices.DeleteFunc(slices.Clone(d.Status.Conditions),
		func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Terminating
		})
	d.Status.Conditions = append(d.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue,
		LastTransitionTime: metav1.Time{Time: time.Now()}.Rfc3339Copy(),
		Reason:             "InstanceDeletionPending",
		Message:            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
	})
}
