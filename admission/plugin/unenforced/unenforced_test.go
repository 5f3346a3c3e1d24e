package unenforced

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/admission"
	"github.com/keelson-dev/keelson/admission/admissiontest"
	"github.com/keelson-dev/keelson/request"
)

// warnings returns the Warning headers of the response to a write.
func warnings(t *testing.T, a *admission.Attributes) []string {
	t.Helper()
	var w request.Warnings
	if err := Plugin().Validate(request.WithWarnings(t.Context(), &w), a); err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	w.WriteHeaders(h)
	return h.Values("Warning")
}

func TestEachUnenforcedObjectHasAWarning(t *testing.T) {
	for _, u := range list() {
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
		want := `299 - "` + u.warning + `"`
		created, changed := admissiontest.Creation(u.resource, obj), admissiontest.Change(u.resource, obj, obj)
		created.Options.DryRun = true
		for _, a := range []*admission.Attributes{created, changed} {
			if got := warnings(t, a); len(got) != 1 || got[0] != want {
				t.Errorf("%v: %q, want %q", u.resource, got, want)
			}
		}
		changed.Subresource = "status"
		if got := warnings(t, changed); len(got) != 0 {
			t.Errorf("%v/status: %q", u.resource, got)
		}
	}
	plain := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	if got := warnings(t, admissiontest.Creation(corev1.Resource("configmaps"), plain)); len(got) != 0 {
		t.Errorf("another kind: %q", got)
	}
}
