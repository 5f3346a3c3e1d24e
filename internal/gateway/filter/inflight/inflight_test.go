package inflight

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

func TestLimits(t *testing.T) {
	entered, release := make(chan bool), make(chan bool)
	l := New(1, 1)
	h := l.Filter(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Stay") != "" {
			entered <- true
			<-release
		}
	}))
	serve := func(method, path, group string, stay bool) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		if stay {
			r.Header.Set("Stay", "yes")
		}
		ctx := request.WithInfo(r.Context(), request.ParseInfo(r))
		ctx = request.WithUser(ctx, &request.User{Name: "u", Groups: []string{group}})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(ctx))
		return w
	}
	done := make(chan bool)
	go func() { serve("GET", "/api/v1/pods", "g", true); done <- true }()
	<-entered
	if w := serve("GET", "/api/v1/pods", "g", false); w.Code != http.StatusTooManyRequests ||
		w.Header().Get("Retry-After") != "1" || w.Body.String() != "Too many requests, please try again later.\n" {
		t.Errorf("above the limit: %d %v", w.Code, w.Header())
	}
	for name, w := range map[string]*httptest.ResponseRecorder{
		"system:masters":  serve("GET", "/api/v1/pods", request.GroupMasters, false),
		"another kind":    serve("POST", "/api/v1/pods", "g", false),
		"long-running":    serve("GET", "/api/v1/pods?watch=1", "g", false),
		"long-running, 2": serve("GET", "/api/v1/namespaces/n/pods/p/log", "g", false),
	} {
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	if readOnly, mutating := l.Current(); readOnly != 1 || mutating != 0 {
		t.Errorf("in flight: %d %d", readOnly, mutating)
	}
	release <- true
	<-done
	if w := serve("GET", "/api/v1/pods", "g", false); w.Code != http.StatusOK {
		t.Errorf("after the first is done: %d", w.Code)
	}
}
