package frontpage

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/console"
)

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

func TestPage(t *testing.T) {
	var ready error
	page := New(Page{
		Version: "1.2.3", Kubernetes: "v1.36.3", Kubeconfig: "<data>/kubeconfig",
		Ready: func(context.Context) error { return ready },
	})
	get := func(method, path, accept, remote string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		r.RemoteAddr = remote
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		if Wanted(r) {
			page.ServeHTTP(w, r)
		} else {
			w.WriteHeader(http.StatusNotFound)
		}
		return w
	}
	const here, there = "127.0.0.1:1000", "192.0.2.1:1000"
	w := get(http.MethodGet, "/", browser, here)
	for _, part := range []string{"Keelson 1.2.3", "Kubernetes v1.36.3", "It is ready.", "&lt;data&gt;/kubeconfig", Documentation} {
		if !strings.Contains(w.Body.String(), part) {
			t.Errorf("the page has no %q", part)
		}
	}
	if p := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(p, "default-src 'none'; frame-ancestors 'none';") {
		t.Errorf("the policy is %q", p)
	}
	if strings.Contains(w.Body.String(), console.Root) {
		t.Error("the page has a link to a console that is off")
	}
	withConsole := Page{Console: true, Ready: func(context.Context) error { return nil }}
	if body := withConsole.text(httptest.NewRequest(http.MethodGet, "/", nil)); !strings.Contains(body, `<a href="/console/">`) {
		t.Errorf("the page has no link to the console: %s", body)
	}
	ready = errors.New("secret")
	if body := get(http.MethodGet, "/", browser, there).Body.String(); !strings.Contains(body, "It is not ready.") ||
		strings.Contains(body, "secret") || strings.Contains(body, "kubeconfig") {
		t.Errorf("from another machine the page is %s", body)
	}
	for _, other := range [][3]string{
		{http.MethodGet, "/", "application/json, text/html"}, {http.MethodGet, "/", "*/*"}, {http.MethodGet, "/", ""},
		{http.MethodPost, "/", browser}, {http.MethodGet, "/api", browser}, {http.MethodGet, "/index.html", browser},
	} {
		if w := get(other[0], other[1], other[2], here); w.Code != http.StatusNotFound {
			t.Errorf("%q: %d", other, w.Code)
		}
	}
}
