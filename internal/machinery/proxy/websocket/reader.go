package websocket

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"

	"golang.org/x/net/websocket"
)

// Protocols of a WebSocket that carries one stream to the client. Without a protocol the messages are binary.
const (
	binaryProtocol = "binary.k8s.io"
	base64Protocol = "base64.binary.k8s.io"
)

// readerBuffer is the largest message of Send, in bytes before they are encoded.
const readerBuffer = 2 << 10

// Send sends the content of a stream to a client that has requested a WebSocket. It returns when the stream, the
// connection or the context of the request has ended, or if the client requests an unknown protocol. It closes the
// stream.
func Send(w http.ResponseWriter, r *http.Request, from io.ReadCloser) {
	defer from.Close()
	websocket.Server{Handshake: chooseProtocol, Handler: func(ws *websocket.Conn) {
		end := func() { _, _ = from.Close(), ws.Close() } // both ends of the copy
		defer context.AfterFunc(r.Context(), end)()
		go func() {
			_, _ = io.Copy(io.Discard, ws) // the client sends nothing, so this ends when the client is gone
			end()
		}()
		sendMessages(ws, from)
	}}.ServeHTTP(w, r)
}

// chooseProtocol chooses the first protocol of the client that is known.
func chooseProtocol(config *websocket.Config, _ *http.Request) error {
	known := []string{"", binaryProtocol, base64Protocol}
	asked := config.Protocol
	if len(asked) == 0 {
		asked = []string{""}
	}
	for _, protocol := range asked {
		if slices.Contains(known, protocol) {
			config.Protocol = []string{protocol}
			return nil
		}
	}
	return fmt.Errorf("requested protocol(s) are not supported: %v; supports %v", asked, known)
}

// sendMessages sends an empty message, by which the client knows that the connection is open, and then the content of
// from.
func sendMessages(ws *websocket.Conn, from io.Reader) {
	send := func(b []byte) error { return websocket.Message.Send(ws, b) }
	if ws.Config().Protocol[0] == base64Protocol {
		send = func(b []byte) error { return websocket.Message.Send(ws, base64.StdEncoding.EncodeToString(b)) }
	}
	if send([]byte{}) != nil {
		return
	}
	b := make([]byte, readerBuffer)
	for {
		n, err := from.Read(b)
		if n > 0 && send(b[:n]) != nil || err != nil {
			return
		}
	}
}
