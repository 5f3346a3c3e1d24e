package unauthenticated

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func page(path, text string, entered, release chan bool) Page {
	return Page{
		Path:   path,
		Serves: func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, path) },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery == "stay" {
				entered <- true
				<-release
			}
			_, _ = w.Write([]byte(text))
		}),
	}
}

func get(h http.Handler, target, remote string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.RemoteAddr = remote
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestRule checks that the pages which the rule does not allow are not served.
func TestRule(t *testing.T) {
	pages := []Page{page("/console/", "console", nil, nil), page("/front", "front", nil, nil)}
	filter := New(Options{Pages: pages, Allows: func(path string) bool { return path == "/front" }})
	h := filter(http.NotFoundHandler())
	if w := get(h, "/front", "192.0.2.1:1"); w.Body.String() != "front" {
		t.Errorf("the open page: %d %s", w.Code, w.Body)
	}
	for _, path := range []string{"/console/", "/other"} {
		if w := get(h, path, "192.0.2.1:1"); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if New(Options{Pages: pages, Allows: func(string) bool { return false }}) != nil {
		t.Error("there is a filter although no page is open")
	}
}

// TestLimits checks that one address leaves places for others, that a refusal has no body, and that the places of
// ended requests are free again.
func TestLimits(t *testing.T) {
	entered, release, done := make(chan bool), make(chan bool), make(chan bool)
	refused := 0
	h := New(Options{
		Pages: []Page{page("/", "text", entered, release)}, Allows: func(string) bool { return true }, Refused: func() { refused++ },
	})(http.NotFoundHandler())
	for range addressRequests {
		go func() {
			get(h, "/?stay", "192.0.2.1:1")
			done <- true
		}()
		<-entered
	}
	w := get(h, "/", "192.0.2.1:2")
	if w.Code != http.StatusTooManyRequests || w.Body.Len() != 0 || w.Header().Get("Retry-After") != "1" || refused != 1 {
		t.Errorf("above the limit: %d %v %s, %d are counted", w.Code, w.Header(), w.Body, refused)
	}
	if w := get(h, "/", "192.0.2.2:1"); w.Code != http.StatusOK {
		t.Errorf("another address: %d", w.Code)
	}
	close(release)
	for range addressRequests {
		<-done
	}
	if w := get(h, "/", "192.0.2.1:2"); w.Code != http.StatusOK {
		t.Errorf("after that: %d", w.Code)
	}
}
