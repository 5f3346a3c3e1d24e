package websocket

import (
	"errors"
	"net/http"
	"strings"

	"golang.org/x/net/websocket"
	"k8s.io/apimachinery/pkg/util/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// A Tunnel serves WebSockets whose messages contain a SPDY connection. It connects to the kubelet by SPDY and copies.
type Tunnel struct{ Options }

// errNoUpgradeHeaders is the response if the kubelet sends 101 without the headers of an upgrade to SPDY.
var errNoUpgradeHeaders = errors.New("unable to upgrade: missing upgrade headers in response")

// ServeHTTP implements http.Handler.
func (t *Tunnel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protocols := tunneledProtocols(r)
	if len(protocols) == 0 {
		t.Observe.done(http.StatusBadRequest)
		http.Error(w, "unable to upgrade: no tunneling spdy protocols provided", http.StatusBadRequest)
		return
	}
	header := r.Header.Clone()
	for _, name := range []string{wsstream.WebSocketProtocolHeader, "Sec-Websocket-Key", "Sec-Websocket-Version",
		"Sec-Websocket-Extensions"} {
		header.Del(name)
	}
	server, err := t.Proxy.Open(spdyRequest(r, header, protocols...))
	if err != nil {
		t.Observe.done(http.StatusInternalServerError)
		t.Proxy.Error(w, r, err)
		return
	}
	defer server.Close()
	switch {
	case server.Response.StatusCode != http.StatusSwitchingProtocols:
		t.Observe.done(server.Response.StatusCode)
		t.Proxy.Refuse(w, r, server)
		return
	case !hasSwitched(server.Response):
		t.Observe.done(http.StatusInternalServerError)
		http.Error(w, errNoUpgradeHeaders.Error(), http.StatusInternalServerError)
		return
	}
	var chosen []string
	if p := strings.TrimSpace(server.Response.Header.Get(httpstream.HeaderProtocolVersion)); p != "" {
		chosen = []string{portforward.WebsocketsSPDYTunnelingPrefix + p}
	}
	websocket.Server{
		Handshake: func(c *websocket.Config, _ *http.Request) error {
			c.Protocol = chosen
			return nil
		},
		Handler: func(client *websocket.Conn) {
			t.Observe.done(http.StatusSwitchingProtocols)
			client.PayloadType = websocket.BinaryFrame
			t.Proxy.Join(r.Context(), client, server)
		},
	}.ServeHTTP(w, r)
}

// tunneledProtocols returns the protocols of SPDY that the client offers inside of a WebSocket.
func tunneledProtocols(r *http.Request) []string {
	var out []string
	for _, offered := range strings.Split(r.Header.Get(wsstream.WebSocketProtocolHeader), ",") {
		offered = strings.TrimSpace(offered)
		inner, ok := strings.CutPrefix(offered, portforward.WebsocketsSPDYTunnelingPrefix)
		if ok && strings.HasSuffix(inner, portforward.KubernetesSuffix) {
			out = append(out, inner)
		}
	}
	return out
}
