package websocket

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
)

// patience limits the waits of the tests.
const patience = 30 * time.Second

// serve starts a server that sends a stream with Send, and closes ended when Send has returned.
func serve(t *testing.T, from io.ReadCloser) (url string, ended chan struct{}) {
	t.Helper()
	ended = make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		Send(w, r, from)
	}))
	t.Cleanup(s.Close)
	return "ws" + strings.TrimPrefix(s.URL, "http"), ended
}

func waitFor(t *testing.T, what string, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatalf("%s did not happen within %v", what, patience)
	}
}

func TestSend(t *testing.T) {
	for protocol, want := range map[string]string{"": "hello", binaryProtocol: "hello", base64Protocol: "aGVsbG8="} {
		url, ended := serve(t, io.NopCloser(strings.NewReader("hello")))
		ws, err := websocket.Dial(url, protocol, "http://localhost")
		if err != nil {
			t.Fatalf("%q: %v", protocol, err)
		}
		for _, message := range []string{"", want} {
			var got string
			if err := websocket.Message.Receive(ws, &got); err != nil || got != message {
				t.Errorf("%q: %q, %v, want %q", protocol, got, err, message)
			}
		}
		waitFor(t, "the end", ended)
		_ = ws.Close()
	}
}

// TestSendEnds asks for an unknown protocol, and goes away while nothing is sent. Both must end Send and close the stream.
func TestSendEnds(t *testing.T) {
	quiet, writer := io.Pipe()
	url, ended := serve(t, quiet)
	if _, err := websocket.Dial(url, "unknown", "http://localhost"); err == nil {
		t.Error("an unknown protocol is accepted")
	}
	waitFor(t, "the end after an unknown protocol", ended)
	if _, err := writer.Write([]byte("x")); err == nil {
		t.Error("the stream is still open")
	}

	quiet, writer = io.Pipe()
	url, ended = serve(t, quiet)
	ws, err := websocket.Dial(url, "", "http://localhost")
	if err != nil {
		t.Fatal(err)
	}
	_ = ws.Close()
	waitFor(t, "the end after the client is gone", ended)
	if _, err := writer.Write([]byte("x")); err == nil {
		t.Error("the stream is still open after the client is gone")
	}
}
