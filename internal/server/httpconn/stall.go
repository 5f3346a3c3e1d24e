// Package httpconn has the connections of the HTTP server: small writes are put together, and a client that reads nothing does not
// delay the end of the server.
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
	// Batches is nil, or counts the connections of which bytes wait to be written together. Then BatchHTTP2 must be in effect.
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
	// It fails only for a connection that is closed.
	c.release = context.AfterFunc(l.Stopping, func() { _ = c.limitWrite() })
	return c, nil
}

// stallConn is a connection whose client may leave no write unread for longer than stallTime, once the server stops. HTTP/2
// has one writer for all requests of a connection, so this also bounds how long the other requests wait for it.
type stallConn struct {
	net.Conn
	stopping context.Context
	release  func() bool
	batches  *batchConn // Conn, or nil
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

// checked closes a connection whose client has read nothing for too long: the HTTP/2 server ends its requests only then.
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
