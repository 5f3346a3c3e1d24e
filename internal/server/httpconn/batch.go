package httpconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// batchBytes is the largest number of bytes of a batchConn that wait while others are being written.
	batchBytes = 16 << 10
	// directBytes is the size of a full TLS record. Full records, and the one after them, are written directly.
	// They belong to a long response, for which one more system call makes no difference.
	directBytes = 16 << 10
	// lingerTime is how long the client of a connection that is being closed may take to read the bytes that wait.
	lingerTime = 30 * time.Second
)

// batchConn is a connection that puts small writes together. Write keeps a copy of the bytes and returns. A goroutine
// writes all bytes that wait with one system call, and ends when there are none. HTTP/2 writes at most 4 KiB at a time for
// small responses and events of watches, and system calls are the largest part of their cost.
//
// Only connections that may speak HTTP/2 are batched, after batchWrites is called. With HTTP/1.1, a connection may
// be closed or taken over by a handler right after a Write, and the client must still get its bytes, however late
// it reads.
//
// While the connection has a write deadline, Write waits until everything is written. crypto/tls sets a deadline
// of 5 s when it closes a connection, for its own alert. The bytes that already wait get lingerTime. If the
// goroutine fails, it closes the connection, because there may be no later Write that could return the error.
type batchConn struct {
	net.Conn
	running  *atomic.Int64   // counts the goroutines of all connections
	stopping context.Context // is done when the server stops

	mu      sync.Mutex // guards the fields below
	batched bool       // batchWrites was called
	changed sync.Cond  // waiting or writing has changed
	waiting *[]byte    // nil if no bytes wait for the goroutine
	writing bool       // the goroutine runs
	limited bool       // there is a write deadline
	long    bool       // the last write was a full record, so that the next one may be the end of the same response
	err     error      // of the goroutine
}

// newBatchConn returns a batchConn that writes to c. running counts its goroutine while there is one.
func newBatchConn(c net.Conn, running *atomic.Int64, stopping context.Context) *batchConn {
	b := &batchConn{Conn: c, running: running, stopping: stopping}
	b.changed.L = &b.mu
	return b
}

// batchWrites lets Write put bytes together from now on.
func (c *batchConn) batchWrites() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batched = true
}

// batches has buffers for waiting bytes.
var batches = sync.Pool{New: func() any { b := make([]byte, 0, batchBytes); return &b }}

// Write implements net.Conn. It waits while there is no room for p.
func (c *batchConn) Write(p []byte) (int, error) {
	batched, err := c.batch(p)
	switch {
	case err != nil:
		return 0, err
	case batched:
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// batch adds p to the waiting bytes. It returns false if p must be written directly. All others are then written
// already.
func (c *batchConn) batch(p []byte) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.writing && !c.fits(p) {
		c.changed.Wait()
	}
	switch {
	case c.err != nil:
		return false, c.err
	case !c.fits(p):
		c.long = len(p) >= directBytes
		return false, nil
	case c.waiting == nil:
		c.waiting = batches.Get().(*[]byte)
	}
	*c.waiting = append(*c.waiting, p...)
	if !c.writing {
		c.writing = true
		c.running.Add(1)
		go c.writeBatches()
	}
	return true, nil
}

// fits reports whether p can be added to the waiting bytes now.
func (c *batchConn) fits(p []byte) bool {
	return c.batched && !c.limited && !c.long && len(p) < directBytes && (c.waiting == nil || len(*c.waiting)+len(p) <= batchBytes)
}

// writeBatches writes the bytes that wait until there are none.
func (c *batchConn) writeBatches() {
	runtime.Gosched() // the goroutines that are ready to run may have bytes for the first batch
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.waiting != nil && c.err == nil {
		b := c.waiting
		c.waiting = nil
		c.changed.Broadcast()
		c.mu.Unlock()
		_, err := c.Conn.Write(*b)
		*b = (*b)[:0]
		batches.Put(b)
		c.mu.Lock()
		c.err = err
	}
	if c.err != nil {
		c.waiting = nil
		_ = c.Conn.Close() // the error of the write is returned
	}
	c.writing = false
	c.running.Add(-1)
	c.changed.Broadcast()
}

// SetWriteDeadline implements net.Conn.
func (c *batchConn) SetWriteDeadline(t time.Time) error { return c.Conn.SetWriteDeadline(c.limit(t)) }

// SetDeadline implements net.Conn.
func (c *batchConn) SetDeadline(t time.Time) error {
	return errors.Join(c.Conn.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// limit records a write deadline and returns the deadline to set. While bytes wait or are being written, this is
// at least lingerTime from now, unless the server stops.
func (c *batchConn) limit(t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limited = !t.IsZero()
	if linger := time.Now().Add(lingerTime); c.limited && c.writing && c.stopping.Err() == nil && t.Before(linger) {
		return linger
	}
	return t
}

// BatchHTTP2 returns a function for config.GetConfigForClient. If client and server can use HTTP/2, the function
// calls batchWrites of the connection. Then it calls the function that config had before, and returns its result.
func BatchHTTP2(config *tls.Config) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	const protocol = "h2"
	inner, spoken := config.GetConfigForClient, slices.Contains(config.NextProtos, protocol)
	return func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if c, ok := hello.Conn.(*stallConn); ok && c.batches != nil && spoken && slices.Contains(hello.SupportedProtos, protocol) {
			c.batches.batchWrites()
		}
		if inner == nil {
			return nil, nil
		}
		return inner(hello)
	}
}
