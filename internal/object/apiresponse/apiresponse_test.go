package apiresponse

import (
	"net/http"
	"net/http/httptest"
	"testing"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestStatusWithControlCharacters answers a Status about a name with a control character as YAML.
func TestStatusWithControlCharacters(t *testing.T) {
	const text = "a\x7fb"
	r := httptest.NewRequest(http.MethodPost, "/api/v1/pods", nil)
	r.Header.Set("Accept", YAML)
	w := httptest.NewRecorder()
	Error(w, r, kerrors.NewBadRequest(text))
	var got metav1.Status
	if err := yaml.Unmarshal(w.Body.Bytes(), &got); w.Code != http.StatusBadRequest || err != nil || got.Message != text {
		t.Errorf("%d %q %v", w.Code, w.Body, err)
	}
}
