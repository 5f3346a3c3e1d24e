package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// watchOf is the path of the watch that clients of these tests do not read.
const watchOf = "/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=0"

// TestStopWithUnreadWatches checks that the server stops soon although a client reads no event of its watch, and
// more events wait than all buffers can hold. The cases are: without a socket, a TCP connection with a full
// window, and an HTTP/2 stream with a full window on a connection that works.
func TestStopWithUnreadWatches(t *testing.T) {
	for _, c := range []struct {
		name      string
		inProcess bool
		watch     func(t *testing.T, s *Server)
	}{
		{"pipe", true, unreadPipe},
		{"HTTP1", false, func(t *testing.T, s *Server) { askForWatch(t, s, dial(t, s, "http/1.1")) }},
		{"HTTP2 connection", false, unreadConnection},
		{"HTTP2 stream", false, unreadStream},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			config := slowConfig(t)
			config.Serving.InProcess = c.inProcess
			s := startUnstopped(t, config)
			c.watch(t, s)
			const events, size = 24, 1 << 20
			for i := range events {
				writeMap(t, s, fmt.Sprint(i, strings.Repeat("x", size-64)))
			}
			stopped := make(chan error, 1)
			go func() { stopped <- s.Stop(context.Background()) }()
			const longest = 30 * time.Second // half of the time limit of a request, for which Stop waits
			select {
			case err := <-stopped:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(longest):
				t.Fatalf("waited %v for Stop", longest)
			}
		})
	}
}

// startUnstopped starts a server that the test stops itself.
func startUnstopped(t *testing.T, c settings) *Server {
	t.Helper()
	s, err := Start(t.Context(), c.Config, c.Options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// writeMap updates a ConfigMap through a connection of its own, which no unread watch delays.
func writeMap(t *testing.T, s *Server, value string) {
	t.Helper()
	client := httpClientFor(t, s)
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"big"},"data":{"x":%q}}`, value)
	r, err := http.NewRequest("PATCH", s.URL()+"/api/v1/namespaces/default/configmaps/big?fieldManager=test&force=true",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/apply-patch+yaml")
	r.Header.Set("Authorization", "Bearer "+s.UserToken("root", []string{"system:masters"}))
	w, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(w.Body)
	_ = w.Body.Close() // it was read
	if err != nil || w.StatusCode != http.StatusOK && w.StatusCode != http.StatusCreated {
		t.Fatalf("%d %v %.200s", w.StatusCode, err, answer)
	}
}

// httpClientFor returns a client with a connection of its own.
func httpClientFor(t *testing.T, s *Server) *http.Client {
	t.Helper()
	if !s.listener.InProcess() {
		return httpClient(t, s, false)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx) }}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func unreadPipe(t *testing.T, s *Server) {
	t.Helper()
	conn, err := s.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	askForWatch(t, s, conn)
}

// askForWatch sends the request of a watch with HTTP/1.1.
func askForWatch(t *testing.T, s *Server, conn net.Conn) {
	t.Helper()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n",
		watchOf, s.UserToken("root", []string{"system:masters"})); err != nil {
		t.Fatal(err)
	}
}

// unreadConnection opens a watch with HTTP/2 and reads nothing. It announces the largest HTTP/2 windows, so the
// TCP connection gets full.
func unreadConnection(t *testing.T, s *Server) {
	t.Helper()
	conn := dial(t, s, "h2")
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	const window = 1<<31 - 1
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteWindowUpdate(0, window-1<<16); err != nil {
		t.Fatal(err)
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: watchOf},
		{Name: ":authority", Value: "localhost"},
		{Name: "authorization", Value: "Bearer " + s.UserToken("root", []string{"system:masters"})},
	} {
		if err := encoder.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true,
	}); err != nil {
		t.Fatal(err)
	}
}

// unreadStream watches with a client that reads the connection but not the body of the response.
func unreadStream(t *testing.T, s *Server) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL()+watchOf, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.UserToken("root", []string{"system:masters"}))
	w, err := httpClient(t, s, false).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Body.Close() })
	if w.ProtoMajor != 2 || w.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", w.Proto, w.Status)
	}
}
