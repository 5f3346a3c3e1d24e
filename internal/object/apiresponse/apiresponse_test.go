package apiresponse

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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

// TestErrorIsIndented checks that indented JSON ends without a newline, and other JSON with one. A client that
// accepts none of the media types gets indented JSON.
func TestErrorIsIndented(t *testing.T) {
	for _, c := range []struct{ query, accept, agent, end string }{
		{"", "", "x", "\"code\":404}\n"},
		{"?pretty=1", "", "x", "  \"code\": 404\n}"},
		{"", "", "curl/8", "  \"code\": 404\n}"},
		{"?pretty=false", "application/json", "curl/8", "\"code\":404}\n"},
		{"", "text/none", "x", "  \"code\": 404\n}"},
	} {
		r := httptest.NewRequest("GET", "/x"+c.query, nil)
		r.Header.Set("Accept", c.accept)
		r.Header.Set("User-Agent", c.agent)
		w := httptest.NewRecorder()
		Error(w, r, kerrors.NewNotFound(corev1.Resource("pods"), "a"))
		if body := w.Body.String(); !strings.HasSuffix(body, c.end) {
			t.Errorf("%+v: %q", c, body)
		}
	}
}
