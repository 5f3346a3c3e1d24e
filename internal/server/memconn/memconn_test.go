package memconn

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"
)

var addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}

// TestConn runs the test suite for net.Conn of package nettest.
func TestConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		c1, c2 = New(addr)
		return c1, c2, func() { _ = errors.Join(c1.Close(), c2.Close()) }, nil
	})
}

// TestBuffer checks that a write of up to limit bytes needs no reader. A longer one waits for a reader until its
// deadline, and returns the number of bytes that were taken. They are read in order, also after Close of the
// writer.
func TestBuffer(t *testing.T) {
	a, b := New(addr)
	content := make([]byte, limit+1000)
	for i := range content {
		content[i] = byte(rand.N(256))
	}
	if n, err := a.Write(content[:1000]); n != 1000 || err != nil {
		t.Fatal(n, err)
	}
	got := make([]byte, 600)
	if _, err := io.ReadFull(b, got); err != nil {
		t.Fatal(err)
	}
	if err := a.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	n, err := a.Write(content[1000:])
	if n != limit-400 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes were written, %v; want %d", n, err, limit-400)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(b)
	if got = append(got, rest...); err != nil || !bytes.Equal(got, content[:1000+n]) {
		t.Errorf("%d bytes were read, %v; want %d", len(got), err, 1000+n)
	}
	if _, err := b.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a write after Close of the other end: %v", err)
	}
	if _, err := a.Read(got); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a read at the closed end: %v", err)
	}
}

// TestLaterDeadline checks that a deadline has no effect after it was replaced.
func TestLaterDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := New(addr)
		defer b.Close() //nolint:errcheck // of a test
		for _, d := range []time.Duration{time.Minute, time.Hour} {
			if err := a.SetReadDeadline(time.Now().Add(d)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, err := b.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
	})
}
