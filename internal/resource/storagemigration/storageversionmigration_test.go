package storagemigration

import (
	"testing"

	migrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

func TestResource(t *testing.T) {
	for _, c := range []struct {
		resource metav1.GroupResource
		want     string // field of the error
	}{
		{metav1.GroupResource{Resource: "pods"}, ""},
		{metav1.GroupResource{Group: "apps", Resource: "deployments"}, ""},
		{metav1.GroupResource{Group: "apps"}, "spec.resource"},
		{metav1.GroupResource{Resource: "Pods"}, "spec.resource"},
		{metav1.GroupResource{Group: "Apps", Resource: "deployments"}, "spec.group"},
	} {
		got := ""
		for _, err := range validateResource(c.resource, field.NewPath("spec")) {
			got += err.Field
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.resource, got, c.want)
		}
	}
}

// TestStatus checks that a migration that has ended stays as it is.
func TestStatus(t *testing.T) {
	status := func(version string, conditions ...migrationv1.MigrationConditionType) *migrationv1.StorageVersionMigrationStatus {
		s := &migrationv1.StorageVersionMigrationStatus{ResourceVersion: version}
		for _, c := range conditions {
			s.Conditions = append(s.Conditions, metav1.Condition{
				Type: string(c), Status: metav1.ConditionTrue, Reason: "R", LastTransitionTime: metav1.Now(),
			})
		}
		return s
	}
	const running, succeeded, failed = migrationv1.MigrationRunning, migrationv1.MigrationSucceeded,
		migrationv1.MigrationFailed
	for name, c := range map[string]struct {
		now, before *migrationv1.StorageVersionMigrationStatus
		want, state string
	}{
		"begins":          {status("7", running), status(""), "", "Running"},
		"ends":            {status("7", running, succeeded), status("7", running), "", "Succeeded"},
		"no version":      {status("x"), status(""), "status.resourceVersion", "Unknown"},
		"another version": {status("8"), status("7"), "status.resourceVersion", "Unknown"},
		"both":            {status("7", succeeded, failed), status("7"), "status.conditions", "Failed"},
		"not succeeded":   {status("7", running), status("7", succeeded), "status.conditions", "Running"},
		"not failed":      {status("7"), status("7", failed), "status.conditions", "Unknown"},
	} {
		got := ""
		for _, err := range validateStatus(c.now, c.before, field.NewPath("status")) {
			got += err.Field
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if got := state(c.now); got != c.state {
			t.Errorf("%s: %s, want %s", name, got, c.state)
		}
	}
}
