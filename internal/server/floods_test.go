package server

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// dial opens a connection without credentials.
func dial(t *testing.T, s *Server, protocol string) *tls.Conn {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.CA())
	conn, err := tls.Dial(
		"tcp", s.listener.Addr().String(),
		&tls.Config{RootCAs: pool, ServerName: "localhost", NextProtos: []string{protocol}},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// exchange sends the text of a request unchanged and returns the response.
func exchange(t *testing.T, s *Server, text string) *http.Response {
	t.Helper()
	conn := dial(t, s, "http/1.1")
	go func() { _, _ = io.WriteString(conn, text) }() // the server may close before it has read all
	w, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestConnectionsOfUnauthenticatedClientsAreClosed(t *testing.T) {
	s := start(t, testConfig(t))
	for _, header := range []string{"", "Authorization: Bearer wrong\r\n"} {
		if w := exchange(t, s, "GET /healthz HTTP/1.1\r\nHost: x\r\n"+header+"\r\n"); !w.Close {
			t.Errorf("%q: %d, the connection stays", header, w.StatusCode)
		}
	}
	if w := exchange(t, s, "GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admintoken\r\n\r\n"); w.Close {
		t.Errorf("a known client: %d, the connection is closed", w.StatusCode)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	s := start(t, testConfig(t))
	w := exchange(t, s, "GET /healthz HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 2*maxHeaderBytes)+"\r\n\r\n")
	if w.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%d", w.StatusCode)
	}
}

// TestSlowHeadersEnd checks that there is a time limit to send the headers of a request, and one to send the next
// request.
func TestSlowHeadersEnd(t *testing.T) {
	s := start(t, testConfig(t))
	if s.http.server.ReadHeaderTimeout <= 0 || s.http.server.IdleTimeout <= 0 {
		t.Errorf(
			"headers may take %v, a connection may be idle for %v", s.http.server.ReadHeaderTimeout, s.http.server.IdleTimeout,
		)
	}
}

func TestSlowBodiesEndWithTheRequest(t *testing.T) {
	c := testConfig(t)
	c.Requests.Timeout = 50 * time.Millisecond
	s := start(t, c)
	w := exchange(
		t, s,
		"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admintoken\r\nContent-Type: "+
			"application/json\r\nContent-Length: 1000\r\n\r\n{",
	)
	if w.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("%d", w.StatusCode)
	}
}

// TestRapidReset (CVE-2023-44487) checks a client that opens streams and resets them at once. The server handles
// no more of them at a time than the limit, and still serves other clients.
func TestRapidReset(t *testing.T) {
	s := start(t, testConfig(t))
	conn := dial(t, s, "h2")
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	frame, err := framer.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	settings, ok := frame.(*http2.SettingsFrame)
	if !ok {
		t.Fatalf("%v", frame)
	}
	if streams, ok := settings.Value(http2.SettingMaxConcurrentStreams); !ok || streams != maxStreams {
		t.Errorf("%d streams, %v", streams, ok)
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", "/readyz"}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }() // until the server closes the connection
	var most int64
	const streams = 5000
	for i := range uint32(streams) {
		id := 2*i + 1
		if framer.WriteHeaders(
			http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true},
		) != nil ||
			framer.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			break // the server has closed the connection
		}
		most = max(most, s.http.active.Load())
	}
	if most > maxStreams {
		t.Errorf("%d requests were served at a time", most)
	}
	if a := apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+"/livez", ""); a.Status != http.StatusOK {
		t.Errorf("others: %d", a.Status)
	}
}
