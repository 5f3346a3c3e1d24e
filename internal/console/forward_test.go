package console

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// TestBodiesAreSentAgain has a server that accepts another token before each request. A request with a body is
// repeated with the new token. If the body is too large, the request fails and the next one succeeds.
func TestBodiesAreSentAgain(t *testing.T) {
	var valid atomic.Int64
	token := func() string { return strconv.FormatInt(valid.Load(), 10) }
	api := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != token() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(w, r.Body)
	})
	base, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(api.Certificate())
	c := serveConsole(t, api, func(context.Context) (*Upstream, error) {
		return &Upstream{URL: base, Header: http.Header{"Authorization": {token()}}, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}, nil
	})
	for _, size := range []int{2, maxRepeated, maxRepeated + 1} {
		sent := strings.Repeat("x", size)
		valid.Add(1)
		c.now(reconnectPause)
		response, body := c.send(t, http.MethodPost, podsPath, sent)
		if size > maxRepeated {
			if response.StatusCode != 401 || len(api.got()) != 1 {
				t.Errorf("%d bytes: %d", size, response.StatusCode)
			}
			response, body = c.send(t, http.MethodPost, podsPath, sent)
		}
		got := api.got()
		if response.StatusCode != 200 || body != sent || got[len(got)-1].ContentLength != int64(size) {
			t.Errorf("%d bytes: %d, %d bytes of body, %d requests", size, response.StatusCode, len(body), len(got))
		}
	}
}
