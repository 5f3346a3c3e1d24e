package hostile

import (
	"bytes"
	"crypto/tls"
	"io"
	"maps"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// dial opens a connection to the server that speaks "http/1.1" or "h2". It is closed when the attack ends.
func (a *attack) dial(protocol string) *tls.Conn {
	a.Helper()
	address := strings.TrimPrefix(a.server.url, "https://")
	//nolint:gosec // the server is a child process
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	if err != nil {
		a.Fatal(err)
	}
	a.atEnd(func() { _ = conn.Close() })
	return conn
}

// connection is an HTTP/2 connection whose frames the attack writes itself. It reads everything that the server sends,
// unless the attack has asked not to.
type connection struct {
	conn   *tls.Conn
	mu     sync.Mutex // guards the fields below, and writes
	framer *http2.Framer
	block  bytes.Buffer
	hpack  *hpack.Encoder
	status map[uint32]string // by stream, set when its headers were received
	ended  map[uint32]bool   // streams that the server has ended or reset
	goaway bool
	closed bool // the server has closed the connection
}

// dialHTTP2 opens an HTTP/2 connection and sends the preface with the settings. A connection that does not read leaves
// everything that the server sends in the buffers of the kernel.
func (a *attack) dialHTTP2(reads bool, settings ...http2.Setting) *connection {
	a.Helper()
	c := &connection{conn: a.dial("h2"), status: map[uint32]string{}, ended: map[uint32]bool{}}
	c.hpack = hpack.NewEncoder(&c.block)
	c.framer = http2.NewFramer(c.conn, c.conn)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(c.conn, http2.ClientPreface); err != nil {
		a.Fatal(err)
	}
	if err := c.framer.WriteSettings(settings...); err != nil {
		a.Fatal(err)
	}
	if reads {
		go c.read()
	}
	return c
}

// read records what the server sends until the connection ends.
func (c *connection) read() {
	for {
		frame, err := c.framer.ReadFrame()
		c.mu.Lock()
		if err != nil {
			c.closed = true
			c.mu.Unlock()
			return
		}
		c.note(frame)
		c.mu.Unlock()
	}
}

func (c *connection) note(frame http2.Frame) {
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		c.status[f.StreamID] = f.PseudoValue("status")
		c.ended[f.StreamID] = c.ended[f.StreamID] || f.StreamEnded()
	case *http2.DataFrame:
		c.ended[f.StreamID] = c.ended[f.StreamID] || f.StreamEnded()
	case *http2.RSTStreamFrame:
		c.ended[f.StreamID] = true
	case *http2.GoAwayFrame:
		c.goaway = true
	case *http2.SettingsFrame:
		if !f.IsAck() {
			_ = c.framer.WriteSettingsAck() // a broken connection is noticed at the next write
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			_ = c.framer.WritePing(true, f.Data)
		}
	}
}

// headers opens a stream with a request. pairs are names and values in turn, after the pseudo-headers. The stream
// stays open for a body unless end is true.
func (c *connection) headers(stream uint32, end bool, method, path string, pairs ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.block.Reset()
	all := append([]string{":method", method, ":scheme", "https", ":authority", "server", ":path", path}, pairs...)
	for i := 0; i+1 < len(all); i += 2 {
		if err := c.hpack.WriteField(hpack.HeaderField{Name: strings.ToLower(all[i]), Value: all[i+1]}); err != nil {
			return err
		}
	}
	return c.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: c.block.Bytes(), EndStream: end, EndHeaders: true,
	})
}

// write runs f, which writes frames, with mu held.
func (c *connection) write(f func(*http2.Framer) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f(c.framer)
}

// answered returns the statuses of the streams whose responses have begun, and "" for streams that the server has
// ended without a response.
func (c *connection) answered() map[uint32]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := maps.Clone(c.status)
	for id := range c.ended {
		if _, ok := out[id]; !ok {
			out[id] = ""
		}
	}
	return out
}
