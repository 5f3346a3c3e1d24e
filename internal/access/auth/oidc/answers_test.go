package oidc

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestAnswersOfIssuersAreBounded has an issuer whose metadata do not end.
func TestAnswersOfIssuersAreBounded(t *testing.T) {
	p := newProvider(t)
	const most = 64 << 20
	taken := make(chan int, 1)
	p.further["/endless"] = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"issuer":"`)
		part, n := strings.Repeat("x", 1<<20), 0
		for n < most {
			written, err := io.WriteString(w, part)
			if n += written; err != nil {
				break
			}
		}
		taken <- n
	}
	config := p.config()
	config.Issuer.DiscoveryURL = text(p.URL + "/endless")
	i, err := NewIssuer(t.Context(), &config, nil, options())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.newVerifier(t.Context(), p.URL); err == nil || !strings.Contains(err.Error(), "has more than") {
		t.Errorf("the error is %v", err)
	}
	i.client.CloseIdleConnections()
	if n := <-taken; n >= most {
		t.Errorf("%d bytes were read", n)
	}
}

// TestIssuersThatSwitchProtocols checks that the body of a response with status 101 is not read. It is the
// connection, and reading it would not end at the time-out.
func TestIssuersThatSwitchProtocols(t *testing.T) {
	p := newProvider(t)
	p.further["/switch"] = func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	}
	config := p.config()
	config.Issuer.DiscoveryURL = text(p.URL + "/switch")
	i, err := NewIssuer(t.Context(), &config, nil, options())
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		_, err := i.newVerifier(t.Context(), p.URL)
		result <- err
	}()
	select {
	case err := <-result:
		if err == nil || !strings.Contains(err.Error(), "has switched") {
			t.Errorf("the error is %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the request has not ended")
	}
}
