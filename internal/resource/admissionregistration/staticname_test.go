package admissionregistration

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStaticNames(t *testing.T) {
	for name, warnings := range map[string]int{"a": 0, "a.static.k8s.io": 1, "static.k8s.io": 0} {
		p := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if got := warnStaticName(p, nil); len(got) != warnings {
			t.Errorf("%s: %q", name, got)
		}
	}
}
