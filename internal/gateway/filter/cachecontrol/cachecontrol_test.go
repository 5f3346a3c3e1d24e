package cachecontrol

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestCacheControl sets the header again in a handler, which must not change the responses that follow.
func TestCacheControl(t *testing.T) {
	for _, set := range []string{"", "public", ""} {
		w := httptest.NewRecorder()
		New()(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if set != "" {
				w.Header().Set("Cache-Control", set)
			}
		})).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		want := set
		if want == "" {
			want = "no-cache, private"
		}
		if got := w.Header().Get("Cache-Control"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
