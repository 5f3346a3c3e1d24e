package console

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestPort80 has the requests of browsers to port 80. Their headers Host and Origin have no port.
func TestPort80(t *testing.T) {
	for _, c := range []struct {
		port         int
		host, origin string
		code         int // 0 means that it is not refused
	}{
		{80, "127.0.0.1", "http://127.0.0.1", 0},
		{80, "localhost", "http://localhost", 0},
		{80, "127.0.0.1:80", "http://127.0.0.1:80", 0},
		{80, "127.0.0.1", "http://localhost", http.StatusForbidden},
		{80, "127.0.0.1", "https://127.0.0.1", http.StatusForbidden},
		{80, "evil.example", "http://evil.example", http.StatusMisdirectedRequest},
		{8080, "127.0.0.1", "http://127.0.0.1", http.StatusMisdirectedRequest},
		{443, "127.0.0.1", "http://127.0.0.1", http.StatusMisdirectedRequest},
	} {
		g := newGuard(c.port)
		r := httptest.NewRequest(http.MethodPost, "/api", nil)
		r.Host = c.host
		r.Header = http.Header{"Origin": {c.origin}, HeaderName: {"1"}, "Sec-Fetch-Site": {"same-origin"}}
		code := 0
		if no := g.check(r); no != nil {
			code = no.code
		}
		if code != c.code {
			t.Errorf("port %d, host %s, origin %s: %d, want %d", c.port, c.host, c.origin, code, c.code)
		}
	}
}
