package proxy

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// TestInvalidStatus forwards to a server whose status codes net/http reads but does not send.
func TestInvalidStatus(t *testing.T) {
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
			_, _ = conn.Read(make([]byte, 4<<10))
			_, _ = io.WriteString(conn, "HTTP/1.1 042 Odd\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\n<p>")
			_ = conn.Close()
		}
	}()
	var failed error
	h := &Handler{
		Target:  Target{URL: &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/"}, Transport: NewTransport(TransportOptions{})},
		Rewrite: NewRewriter("/a/", "/"),
		Error: func(w http.ResponseWriter, _ *http.Request, err error) {
			failed = err
			w.WriteHeader(http.StatusServiceUnavailable)
		},
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/a/", nil))
	if failed == nil || w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d, %v", w.Code, failed)
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
