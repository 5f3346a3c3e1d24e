package server

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

// stallListener accepts connections that a client cannot use to delay the end of the server.
type stallListener struct {
	net.Listener
	stopping context.Context // is done when the server stops
	// batches is nil, or counts the connections of which bytes wait to be written together: see batchConn.
	batches *atomic.Int64
}

// Accept implements net.Listener.
func (l *stallListener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &stallConn{Conn: inner, stopping: l.stopping}
	if l.batches != nil {
		c.batches = newBatchConn(inner, l.batches, l.stopping)
		c.Conn = c.batches
	}
	// It fails only for a connection that is closed.
	c.release = context.AfterFunc(l.stopping, func() { _ = c.limitWrite() })
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
