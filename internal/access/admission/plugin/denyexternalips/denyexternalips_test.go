package denyexternalips

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
)

func service(ips ...string) *corev1.Service {
	s := &corev1.Service{}
	s.Name, s.Spec.ExternalIPs = "s", ips
	return s
}

func TestOnlyNewExternalIPsAreRefused(t *testing.T) {
	const refused = `services "s" is forbidden: Use of external IPs is denied by admission control`
	for name, c := range map[string]struct {
		a    *admission.Attributes
		want string
	}{
		"create without":     {admissiontest.Creation(services, service()), ""},
		"create with":        {admissiontest.Creation(services, service("1.2.3.4")), refused},
		"update that keeps":  {admissiontest.Change(services, service("1.2.3.4"), service("1.2.3.4", "5.6.7.8")), ""},
		"update that adds":   {admissiontest.Change(services, service("1.2.3.4", "5.6.7.8"), service("1.2.3.4")), refused},
		"update that moves":  {admissiontest.Change(services, service("5.6.7.8"), service("1.2.3.4")), refused},
		"update that clears": {admissiontest.Change(services, service(), service("1.2.3.4")), ""},
	} {
		err := Plugin().Validate(t.Context(), c.a)
		if got := text(err); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	status := admissiontest.Change(services, service("1.2.3.4"), service())
	status.Subresource = "status"
	if err := Plugin().Validate(t.Context(), status); err != nil {
		t.Errorf("status: %v", err)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
