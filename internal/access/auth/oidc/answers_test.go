package oidc

import (
	"io"
	"net/http"
	"strings"
	"testing"
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
