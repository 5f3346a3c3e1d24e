package hsts

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestDirectives(t *testing.T) {
	h := New([]string{"max-age=31536000", "includeSubDomains"})(http.NotFoundHandler())
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if got := w.Header().Get("Strict-Transport-Security"); got != "max-age=31536000; includeSubDomains" {
		t.Errorf("%q", got)
	}
	for directive, valid := range map[string]bool{"max-age=1": true, "preload": true, "includeSubDomains": true, "": false,
		" ": false, "max-age": false, "x=1": false} {
		if err := Validate([]string{directive}); (err == nil) != valid {
			t.Errorf("%q: %v", directive, err)
		}
	}
}
