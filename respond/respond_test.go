package respond

import (
	"net/http"
	"net/http/httptest"
	"testing"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestStatusWithControlCharacters answers a name with a control character in both media types of text.
func TestStatusWithControlCharacters(t *testing.T) {
	const text = "a\x7fb"
	for _, mediaType := range []string{JSON, YAML} {
		r := httptest.NewRequest(http.MethodPost, "/api/v1/pods", nil)
		r.Header.Set("Accept", mediaType)
		w := httptest.NewRecorder()
		Error(w, r, kerrors.NewBadRequest(text))
		var got metav1.Status
		err := yaml.Unmarshal(w.Body.Bytes(), &got) // JSON is YAML
		if w.Code != http.StatusBadRequest || err != nil || got.Message != text {
			t.Errorf("%s: %d %q %v", mediaType, w.Code, w.Body, err)
		}
	}
}
