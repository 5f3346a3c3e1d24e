package server

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// batchBytes is how many bytes of a batchConn wait at most while others are being written.
	batchBytes = 32 << 10
	// directBytes is the size of a full TLS record. Full records, and the one that follows them, are written directly: they
	// are a long response, for which a system call more or less makes no difference.
	directBytes = 16 << 10
)

// batchConn is a connection that puts small writes together. Write keeps a copy of the bytes and returns. A goroutine
// writes all bytes that wait with one system call, and ends when there are none. HTTP/2 writes at most 4 KiB at a time for
// small responses and events of watches, and system calls are the largest part of their cost.
//
// While the connection has a write deadline, Write waits until everything is written. crypto/tls sets one when it closes a
// connection, so the bytes that wait are written before, or until that deadline. If the goroutine fails, it closes the
// connection: there may be no other Write that could return the error.
type batchConn struct {
	net.Conn
	running *atomic.Int64 // counts the goroutines of all connections

	mu      sync.Mutex // guards what follows
	changed sync.Cond  // waiting or writing has changed
	waiting *[]byte    // nil if no bytes wait for the goroutine
	writing bool       // the goroutine runs
	limited bool       // there is a write deadline
	long    bool       // the last write was a full record, so that the next one may be the end of the same response
	err     error      // of the goroutine
}

// newBatchConn returns a batchConn that writes to c. running counts its goroutine while there is one.
func newBatchConn(c net.Conn, running *atomic.Int64) *batchConn {
	b := &batchConn{Conn: c, running: running}
	b.changed.L = &b.mu
	return b
}

// batches are the buffers for bytes that wait.
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

// batch adds p to the bytes that wait. It returns false, after all others are written, if p has to be written directly.
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

// fits reports whether p can wait beside the bytes that wait now.
func (c *batchConn) fits(p []byte) bool {
	return !c.limited && !c.long && len(p) < directBytes && (c.waiting == nil || len(*c.waiting)+len(p) <= batchBytes)
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
func (c *batchConn) SetWriteDeadline(t time.Time) error {
	c.limit(!t.IsZero())
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *batchConn) SetDeadline(t time.Time) error {
	c.limit(!t.IsZero())
	return c.Conn.SetDeadline(t)
}

func (c *batchConn) limit(limited bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limited = limited
}
