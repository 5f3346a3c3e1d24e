package kubectlhistory

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestWarningsAndRetries sends requests to a server that warns, and that refuses some because it is busy.
func TestWarningsAndRetries(t *testing.T) {
	requests := 0
	answer := func(w http.ResponseWriter) {}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		answer(w)
	}))
	t.Cleanup(s.Close)
	var warnings []string
	c := &client{base: s.URL, http: s.Client(), header: http.Header{}, warn: func(text string) { warnings = append(warnings, text) }}
	send := func() error {
		requests = 0
		_, err := c.request(t.Context(), http.MethodPost, "/x", nil, mediaJSON, []byte("{}"))
		return err
	}

	answer = func(w http.ResponseWriter) {
		w.Header().Add("Warning", `299 - "old \"version\""`)
		w.Header().Add("Warning", `199 - "other"`)
		w.Header().Add("Warning", `299 - "unknown field"`)
		if requests < 3 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}
	if err := send(); err != nil || requests != 3 {
		t.Errorf("%d requests, %v", requests, err)
	}
	if want := []string{`old "version"`, "unknown field"}; !slices.Equal(warnings, want) {
		t.Errorf("the warnings are %q, want each once: %q", warnings, want)
	}

	// It repeats a request only a limited number of times, and does not wait for long.
	for after, want := range map[string]int{"0": retries + 1, "31": 1, "": 1, "soon": 1, "-1": 1, "99999999999999999999": 1} {
		answer = func(w http.ResponseWriter) {
			if after != "" {
				w.Header().Set("Retry-After", after)
			}
			w.WriteHeader(http.StatusTooManyRequests)
		}
		if err := send(); !kerrors.IsTooManyRequests(err) || requests != want {
			t.Errorf("Retry-After %q: %d requests, want %d; %v", after, requests, want, err)
		}
	}
	// Other errors are not repeated, because the server may have executed the request.
	answer = func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if err := send(); err == nil || requests != 1 {
		t.Errorf("503: %d requests, %v", requests, err)
	}

	answer = func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "20")
		w.WriteHeader(http.StatusTooManyRequests)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // too short for the wait after the response
	defer cancel()
	if _, err := c.request(ctx, http.MethodGet, "/x", nil, mediaJSON, nil); !kerrors.IsTooManyRequests(err) {
		t.Errorf("interrupted: %v", err)
	}
}

// TestOlderServer checks the error of a server that has the history of an object but not the requested
// subresource.
func TestOlderServer(t *testing.T) {
	history := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/history") && history == http.StatusOK {
			_, _ = io.WriteString(w, "{}")
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","message":"pods \"p\" not found","reason":"NotFound"}`)
	}))
	t.Cleanup(s.Close)
	c := &client{base: s.URL, http: s.Client(), header: http.Header{}}
	ask := func() string {
		return c.past(t.Context(), resource{Version: "v1", Name: "pods", Namespaced: true}, "default", "p", "undelete", nil, nil).Error()
	}
	if got, want := ask(), "the server at "+s.URL+" does not serve undelete; a newer Keelson does"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	history = http.StatusNotFound
	if got := ask(); got != `pods "p" not found` {
		t.Error(got)
	}
}
