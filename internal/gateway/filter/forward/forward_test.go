package forward

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestOnlyForwardedRequestsGoElsewhere(t *testing.T) {
	answer := func(status int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	}
	h := New(func(r *http.Request) http.Handler {
		if r.URL.Path == "/apis/example.com/v1" {
			return answer(http.StatusAccepted)
		}
		return nil
	})(answer(http.StatusOK))
	for path, want := range map[string]int{"/apis/example.com/v1": http.StatusAccepted, "/api": http.StatusOK} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}
