package exclusive

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestAnswersOnlyWhileValid checks that nothing is answered that was handled before another server may have taken over.
func TestAnswersOnlyWhileValid(t *testing.T) {
	valid, handled := true, 0
	serve := func(path string, meanwhile func()) (code int, cut bool) {
		h := New(func() bool { return valid })(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			handled++
			meanwhile()
			w.WriteHeader(http.StatusCreated)
		}))
		w := httptest.NewRecorder()
		defer func() {
			if e := recover(); e != nil {
				code, cut = w.Code, e == http.ErrAbortHandler
			}
		}()
		h.ServeHTTP(w, httptest.NewRequest("POST", path, nil))
		return w.Code, false
	}
	nothing := func() {}
	lose := func() { valid = false }
	if code, cut := serve("/api/v1/namespaces", nothing); code != http.StatusCreated || cut {
		t.Errorf("while valid: %d, cut %v", code, cut)
	}
	if _, cut := serve("/api/v1/namespaces", lose); !cut {
		t.Error("a request during which the lock ended was answered")
	}
	if code, cut := serve("/api/v1/namespaces", nothing); code != http.StatusServiceUnavailable || cut || handled != 2 {
		t.Errorf("without the lock: %d, cut %v, %d requests were handled", code, cut, handled)
	}
	if code, _ := serve("/readyz", nothing); code != http.StatusCreated {
		t.Errorf("the health check: %d", code)
	}
	if New(nil) != nil {
		t.Error("there is a filter without a lock")
	}
}
