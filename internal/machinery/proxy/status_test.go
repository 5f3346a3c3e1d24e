package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// TestInvalidStatus forwards to servers whose status codes net/http reads but does not send, or that switch to another
// protocol without being asked. These must not get the connection of the client.
func TestInvalidStatus(t *testing.T) {
	for answer, want := range map[string]struct {
		text        string
		unreachable bool // answered 503 by the proxies to pods, services and nodes; other errors are 500
	}{
		"HTTP/1.1 042 Odd\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\n<p>": {
			"error trying to reach service: invalid status code 042", true,
		},
		"HTTP/1.1 101 Switching Protocols\r\n\r\n": {
			`backend tried to switch protocol "" when "" was requested`, false,
		},
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n": {
			`backend tried to switch protocol "x" when "" was requested`, false,
		},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					_, _ = conn.Read(make([]byte, 4<<10))
					_, _ = io.WriteString(conn, answer)
					_, _ = conn.Read(make([]byte, 1)) // until the proxy closes the connection
					_ = conn.Close()
				}()
			}
		}()
		transport := NewTransport(TransportOptions{})
		var failed error
		h := &Handler{
			Target:  Target{URL: &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/"}, Transport: transport},
			Rewrite: NewRewriter("/a/", "/"),
			Error: func(w http.ResponseWriter, _ *http.Request, err error) {
				failed = err
				w.WriteHeader(http.StatusServiceUnavailable)
			},
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/a/", nil))
		if failed == nil || failed.Error() != want.text || errors.As(failed, new(*UnreachableError)) != want.unreachable ||
			w.Code != http.StatusServiceUnavailable {
			t.Errorf("%.30q: %d, %v", answer, w.Code, failed)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.Target.URL.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := transport.RoundTrip(r); err == nil {
			_ = response.Body.Close()
			t.Errorf("%.30q: %s", answer, response.Status)
		}
	}
}

// TestIdentityHeadersWithUnderscores checks that other spellings of the headers that name users are removed as well.
func TestIdentityHeadersWithUnderscores(t *testing.T) {
	h := http.Header{"X_remote_user": {"a"}, "X-Remote_group": {"b"}, "X_remote_extra_k": {"c"}, "Authorization": {"d"}, "X-Other": {"e"}}
	removeIdentity(h)
	if len(h) != 1 || h.Get("X-Other") != "e" {
		t.Errorf("%v is left", h)
	}
}
