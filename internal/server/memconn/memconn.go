// Package memconn has connections in memory between goroutines of one process. Unlike net.Pipe they have a buffer, so
// that a small write does not wait for a read.
package memconn

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// limit is the largest number of unread bytes in each direction of a connection.
	limit = 64 << 10
	// kept is the size up to which an empty buffer is kept for later writes.
	kept = 4 << 10
)

// New returns the two ends of a new connection. Its methods may be called concurrently, as those of any net.Conn. After
// Close of one end, the other end reads what was written before, and then io.EOF; its writes fail with io.ErrClosedPipe.
// All calls at the closed end fail with net.ErrClosed. Both ends have the address addr.
func New(addr net.Addr) (a, b net.Conn) {
	forth, back := newDirection(), newDirection()
	return &conn{in: back, out: forth, addr: addr}, &conn{in: forth, out: back, addr: addr}
}

// conn is one end of a connection.
type conn struct {
	in, out *direction
	addr    net.Addr
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.wrap("read", err)
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, c.wrap("write", err)
}

// wrap returns err in a *net.OpError, as other connections do, except for io.EOF and io.ErrClosedPipe.
func (c *conn) wrap(op string, err error) error {
	if err == nil || err == io.EOF || err == io.ErrClosedPipe {
		return err
	}
	return &net.OpError{Op: op, Net: "memory", Addr: c.addr, Err: err}
}

// Close implements net.Conn. It may be called again.
func (c *conn) Close() error {
	c.in.closeReader()
	c.out.closeWriter()
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.addr }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.addr }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	return c.wrap("set", c.in.setDeadline(&c.in.reader, t))
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.wrap("set", c.out.setDeadline(&c.out.writer, t))
}

// direction carries the bytes from the writer at one end to the reader at the other end.
type direction struct {
	mu      sync.Mutex // guards the fields below
	changed sync.Cond  // signals a change of any field below
	// data[start:] has the bytes that are written and not read.
	data           []byte
	start          int
	reader, writer side
}

// side is the reader or the writer of a direction.
type side struct {
	closed  bool
	expired bool        // its deadline has passed
	timer   *time.Timer // of the deadline; nil without one
}

func newDirection() *direction {
	d := &direction{}
	d.changed.L = &d.mu
	return d
}

func (d *direction) read(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		switch {
		case d.reader.closed:
			return 0, net.ErrClosed
		case d.reader.expired:
			return 0, os.ErrDeadlineExceeded
		case d.start < len(d.data) || len(p) == 0:
			n := copy(p, d.data[d.start:])
			d.consume(n)
			return n, nil
		case d.writer.closed:
			return 0, io.EOF
		}
		d.changed.Wait()
	}
}

// consume removes the first n bytes. The caller holds mu.
func (d *direction) consume(n int) {
	if d.start += n; d.start < len(d.data) {
		d.changed.Broadcast()
		return
	}
	d.start = 0
	if d.data = d.data[:0]; cap(d.data) > kept {
		d.data = nil
	}
	d.changed.Broadcast()
}

func (d *direction) write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	written := 0
	for {
		switch {
		case d.writer.closed:
			return written, net.ErrClosed
		case d.writer.expired:
			return written, os.ErrDeadlineExceeded
		case d.reader.closed:
			return written, io.ErrClosedPipe
		case len(p) == 0:
			return written, nil
		}
		if room := limit - (len(d.data) - d.start); room > 0 {
			n := min(room, len(p))
			d.append(p[:n])
			p, written = p[n:], written+n
			continue
		}
		d.changed.Wait()
	}
}

// append adds bytes. There must be room for them. The caller holds mu.
func (d *direction) append(p []byte) {
	if d.start > 0 && len(d.data)+len(p) > cap(d.data) {
		d.data = d.data[:copy(d.data, d.data[d.start:])]
		d.start = 0
	}
	d.data = append(d.data, p...)
	d.changed.Broadcast()
}

// closeReader makes reads and writes fail, and drops unread bytes.
func (d *direction) closeReader() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reader.close()
	d.data, d.start = nil, 0
	d.changed.Broadcast()
}

// closeWriter makes writes fail. Reads fail after all written bytes were read.
func (d *direction) closeWriter() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writer.close()
	d.changed.Broadcast()
}

// setDeadline makes the calls of a side fail from t on. The zero time means no deadline.
func (d *direction) setDeadline(s *side, t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.stop()
	s.expired = false
	switch wait := time.Until(t); {
	case t.IsZero():
	case wait <= 0:
		s.expired = true
		d.changed.Broadcast()
	default:
		var timer *time.Timer
		timer = time.AfterFunc(wait, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if s.timer == timer { // else a later call has set another deadline
				s.expired = true
				d.changed.Broadcast()
			}
		})
		s.timer = timer
	}
	return nil
}

func (s *side) stop() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

func (s *side) close() {
	s.closed = true
	s.stop()
}
