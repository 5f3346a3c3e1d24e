// Package httpconn has the connections of the HTTP server. It joins small writes, and it keeps clients that read
// nothing from delaying the end of the server.
package httpconn

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// stallTime is the time that a client may leave bytes unread once the server stops. Then its connection is closed.
const stallTime = 2 * time.Second

// Listener accepts connections that a client cannot use to delay the end of the server.
type Listener struct {
	net.Listener
	Stopping context.Context // is done when the server stops
	// Batches, unless it is nil, counts the connections with bytes that wait for writeBatches. BatchHTTP2 must
	// then be in effect.
	Batches *atomic.Int64
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &stallConn{Conn: inner, stopping: l.Stopping}
	if l.Batches != nil {
		c.batches = newBatchConn(inner, l.Batches, l.Stopping)
		c.Conn = c.batches
	}
	// limitWrite fails only for a closed connection.
	c.release = context.AfterFunc(l.Stopping, func() { _ = c.limitWrite() })
	return c, nil
}

// stallConn is a connection that fails if the client leaves bytes unread for stallTime after the server began to
// stop. HTTP/2 has one writer for all requests of a connection, so this also limits how long other requests wait
// for that writer.
type stallConn struct {
	net.Conn
	stopping context.Context
	release  func() bool
	batches  *batchConn // the same as Conn if writes are batched, else nil
}

// Write implements net.Conn.
func (c *stallConn) Write(p []byte) (int, error) {
	if c.stopping.Err() == nil { // otherwise limitWrite sets the deadline for this write
		return c.checked(c.Conn.Write(p))
	}
	if err := c.limitWrite(); err != nil {
		return 0, err
	}
	return c.checked(c.Conn.Write(p))
}

// checked closes a connection whose client has read nothing for stallTime: only then does HTTP/2 end its requests.
func (c *stallConn) checked(n int, err error) (int, error) {
	if err != nil && c.stopping.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		_ = c.Close() // the error of the write is returned
	}
	return n, err
}

func (c *stallConn) limitWrite() error { return c.SetWriteDeadline(time.Now().Add(stallTime)) }

// Close implements net.Conn.
func (c *stallConn) Close() error {
	c.release()
	return c.Conn.Close()
}
