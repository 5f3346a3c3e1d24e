package retryafter

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestRequestsAreRefusedWhileTheServerStops(t *testing.T) {
	ending := false
	h := New(func() bool { return ending })(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	serve := func(path, agent string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("User-Agent", agent)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	if w := serve("/api", "kubectl"); w.Code != http.StatusOK {
		t.Errorf("before: %d", w.Code)
	}
	ending = true
	w := serve("/api", "kubectl")
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "5" ||
		w.Header().Get("Connection") != "close" ||
		w.Body.String() != "The apiserver is shutting down, please try again later.\n" {
		t.Errorf("%d %v %q", w.Code, w.Header(), w.Body)
	}
	for _, exempt := range [][2]string{{"/readyz", ""}, {"/livez/ping", ""}, {"/healthz", ""}, {"/metrics", ""},
		{"/api", "kube-apiserver/v1"}} {
		if w := serve(exempt[0], exempt[1]); w.Code != http.StatusOK {
			t.Errorf("%v: %d", exempt, w.Code)
		}
	}
}
