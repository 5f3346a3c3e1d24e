package oidc

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxAnswer is the largest response of an issuer that is read, in bytes: its metadata, or its keys.
const maxAnswer = 1 << 20

// boundedTransport makes the reading of a response fail after maxAnswer bytes, because the library that reads it
// has no limit. It refuses the status 101, after which the body is the connection and has no end.
type boundedTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		_ = response.Body.Close() // it is the connection, whose reads have no deadline
		return nil, errors.New("the issuer has switched to another protocol")
	}
	response.Body = &boundedBody{response.Body, maxAnswer}
	return response, nil
}

type boundedBody struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("the response of the issuer has more than %d bytes", maxAnswer)
	}
	return n, err
}
