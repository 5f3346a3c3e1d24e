// Package websocket serves clients that speak WebSocket in front of kubelets that speak SPDY/3.1. A Translator carries
// the streams of a command from one to the other; a Tunnel unpacks the SPDY that a client has put inside of a WebSocket.
package websocket

import (
	"net/http"
	"strings"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/keelson-dev/keelson/internal/machinery/proxy"
)

// spdy is the name of the protocol to which connections to kubelets are upgraded.
const spdy = "SPDY/3.1"

// Translates reports whether a Translator serves the request: a WebSocket of the protocol v5.channel.k8s.io, in which a
// client can close one stream.
func Translates(r *http.Request) bool { return wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) }

// IsRequest reports whether a client requests a WebSocket.
func IsRequest(r *http.Request) bool { return wsstream.IsWebSocketRequest(r) }

// Tunnels reports whether a Tunnel serves the request: a WebSocket whose messages contain SPDY.
func Tunnels(r *http.Request) bool { return wsstream.IsWebSocketRequestWithTunnelingProtocol(r) }

// spdyRequest returns a request for an upgrade to SPDY with one of the protocols of streams.
func spdyRequest(r *http.Request, header http.Header, protocols ...string) *http.Request {
	out := r.Clone(r.Context())
	out.Method, out.Header, out.Body, out.ContentLength = http.MethodPost, header, nil, 0
	header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	header.Set(httpstream.HeaderUpgrade, spdy)
	header[http.CanonicalHeaderKey(httpstream.HeaderProtocolVersion)] = protocols
	return out
}

// hasSwitched reports whether a server has agreed to SPDY.
func hasSwitched(r *http.Response) bool {
	return r.StatusCode == http.StatusSwitchingProtocols &&
		strings.Contains(strings.ToLower(r.Header.Get(httpstream.HeaderConnection)), "upgrade") &&
		strings.Contains(strings.ToLower(r.Header.Get(httpstream.HeaderUpgrade)), strings.ToLower(spdy))
}

// Observer is called with the status under which metrics count a request. A nil Observer is valid.
type Observer func(status int)

func (o Observer) done(status int) {
	if o != nil {
		o(status)
	}
}

// Options are common to a Translator and a Tunnel.
type Options struct {
	// Proxy opens the connection to the kubelet and copies the data of a Tunnel. Its target is the kubelet.
	Proxy *proxy.Handler
	// Observe is called once for each request.
	Observe Observer
}
