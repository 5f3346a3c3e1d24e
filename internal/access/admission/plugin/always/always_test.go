package always

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
)

func TestAdmitDoesNothing(t *testing.T) {
	if p := Admit(); p.Name != "AlwaysAdmit" || p.Mutate != nil || p.Validate != nil {
		t.Errorf("%+v", p)
	}
}

func TestDenyRefusesEveryWrite(t *testing.T) {
	named, generated := &corev1.ConfigMap{}, &corev1.ConfigMap{}
	named.Name, generated.GenerateName = "c", "c-"
	for want, obj := range map[string]*corev1.ConfigMap{
		`configmaps "c" is forbidden: admission control is denying all modifications`:       named,
		`configmaps "c-" is forbidden: admission control is denying all modifications`:      generated,
		`configmaps "Unknown" is forbidden: admission control is denying all modifications`: {},
	} {
		a := admissiontest.Creation(corev1.Resource("configmaps"), obj)
		if err := Deny().Mutate(t.Context(), a); err == nil || err.Error() != want {
			t.Errorf("mutate: %v, want %s", err, want)
		}
		if err := Deny().Validate(t.Context(), a); err == nil || err.Error() != want {
			t.Errorf("validate: %v, want %s", err, want)
		}
	}
}
