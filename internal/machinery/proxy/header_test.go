package proxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestHeadersOfResponsesAreBounded refuses a response whose header is larger than maxHeader, over both versions of HTTP.
func TestHeadersOfResponsesAreBounded(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := maxHeader / 2
			if r.URL.Path == "/large" {
				n = 2 * maxHeader
			}
			w.Header().Set("X-Long", strings.Repeat("x", n))
		}))
		server.EnableHTTP2 = http2
		server.StartTLS()
		transport := NewTransport(TransportOptions{
			TLS: server.Client().Transport.(*http.Transport).TLSClientConfig, HTTP1: !http2,
		})
		for path, refused := range map[string]bool{"/": false, "/large": true} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := transport.RoundTrip(r)
			if (err != nil) != refused {
				t.Errorf("HTTP/2 %v, %s: %v", http2, path, err)
			}
			if err == nil {
				_ = response.Body.Close()
			}
		}
		transport.CloseIdle()
		server.Close()
	}
}
