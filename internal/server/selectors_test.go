package server

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/access/auth/x509"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// allocated returns the number of bytes that the server allocates for a request without permission.
func allocated(t *testing.T, s *Server, query string) uint64 {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.URL = &url.URL{Path: "/api/v1/pods", RawQuery: query}
	r = r.WithContext(x509.WithConnection(r.Context()))
	var before, after runtime.MemStats
	w := httptest.NewRecorder()
	runtime.ReadMemStats(&before)
	s.http.server.Handler.ServeHTTP(w, r)
	runtime.ReadMemStats(&after)
	if w.Code != http.StatusForbidden {
		t.Errorf("%.60s: %d %.200s", query, w.Code, w.Body)
	}
	return after.TotalAlloc - before.TotalAlloc
}

// TestSelectorsCostNothingWithoutPermission sends the longest possible selectors without permission. It counts the
// bytes that the server allocates: parsing a selector would take more than 100 times its length.
func TestSelectorsCostNothingWithoutPermission(t *testing.T) {
	c := testConfig(t)
	c.Storage.Backend, c.Storage.DataDir = config.StorageMemory, ""
	s := start(t, c)
	const length = 900 << 10
	for name, term := range map[string]string{
		"labels": "a,", "equal labels": "a=b,", "sets": "a+in+(b),", "no selector": "!",
	} {
		text := strings.Repeat(term, length/len(term)) + "c"
		for _, query := range []string{
			"labelSelector=" + text,
			"fieldSelector=metadata.name%3Dx&labelSelector=" + text,
			"fieldSelector=" + text,
			"watch=true&fieldSelector=metadata.name%3Dx," + text,
		} {
			if n := allocated(t, s, query); n > 10*length {
				t.Errorf("%s: %.50s... of %d bytes: %d bytes allocated", name, query, len(query), n)
			}
		}
	}
	a := apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+"/api/v1/pods?labelSelector="+strings.Repeat("a,", 20_000)+"b", "")
	if a.Status != http.StatusBadRequest || a.Message() != "the selector has 20001 terms, more than 10000" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := apitest.Send(
		t, httpClient(t, s, true), "GET", s.URL()+"/api/v1/pods?labelSelector=a+in+("+strings.Repeat("name,", 5000)+"b)", "",
	); a.Status != http.StatusOK {
		t.Errorf("5,000 names: %d %.200s", a.Status, a.Body)
	}
}
