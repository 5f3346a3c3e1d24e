package httpconn

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// gatedConn is a connection that records written bytes. Each Write first waits for a result from gate.
type gatedConn struct {
	net.Conn
	gate   chan error // the result of the next Write
	closed atomic.Bool

	mu     sync.Mutex // guards the fields below
	writes [][]byte
}

func (c *gatedConn) Write(p []byte) (int, error) {
	if err := <-c.gate; err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, bytes.Clone(p))
	return len(p), nil
}

func (c *gatedConn) SetWriteDeadline(time.Time) error { return nil }

func (c *gatedConn) Close() error {
	c.closed.Store(true)
	return nil
}

func (c *gatedConn) all() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

// batched returns a batchConn on inner for which batchWrites was called.
func batched(t *testing.T, inner net.Conn) *batchConn {
	c := newBatchConn(inner, new(atomic.Int64), t.Context())
	c.batchWrites()
	return c
}

// gated returns a batchConn on a gatedConn. Its goroutine waits in a write of the byte "0".
func gated(t *testing.T) (*batchConn, *gatedConn) {
	t.Helper()
	inner := &gatedConn{gate: make(chan error)}
	c := batched(t, inner)
	mustWrite(t, c, []byte("0"))
	wait.Until(t, "the goroutine has taken the first byte", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.waiting == nil
	})
	return c, inner
}

func mustWrite(t *testing.T, c net.Conn, p []byte) {
	t.Helper()
	if n, err := c.Write(p); n != len(p) || err != nil {
		t.Fatalf("Write of %d bytes: %d, %v", len(p), n, err)
	}
}

// TestBatchConnJoinsWrites checks that bytes that arrive during another write are then written together.
func TestBatchConnJoinsWrites(t *testing.T) {
	c, inner := gated(t)
	for _, text := range []string{"1", "2", "3"} {
		mustWrite(t, c, []byte(text))
	}
	if c.running.Load() != 1 {
		t.Errorf("%d connections are counted, want 1", c.running.Load())
	}
	inner.gate <- nil
	inner.gate <- nil
	wait.Until(t, "the goroutine has ended", func() bool { return c.running.Load() == 0 })
	if got := inner.all(); len(got) != 2 || string(got[0]) != "0" || string(got[1]) != "123" {
		t.Errorf("written %q", got)
	}
}

// TestBatchConnIsBounded checks that at most batchBytes wait if the peer reads nothing. When the peer's write
// fails, the connection is closed. Then a Write that waits for room fails, and so does every later Write.
func TestBatchConnIsBounded(t *testing.T) {
	synctest.Test(t, testBatchConnIsBounded)
}

func testBatchConnIsBounded(t *testing.T) {
	c, inner := gated(t)
	part := make([]byte, 4<<10)
	failed := make(chan error, 1)
	var accepted atomic.Int64
	go func() {
		for accepted.Load() <= batchBytes {
			n, err := c.Write(part)
			if err != nil {
				failed <- err
				return
			}
			accepted.Add(int64(n))
		}
		failed <- errors.New("more was accepted than may wait")
	}()
	synctest.Wait() // the next Write waits for room
	if got := accepted.Load(); got != batchBytes {
		t.Errorf("%d bytes wait, want %d", got, batchBytes)
	}
	inner.gate <- os.ErrDeadlineExceeded
	if err := wait.Receive(t, "a Write to fail after another failed", failed); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	if !inner.closed.Load() || c.running.Load() != 0 {
		t.Errorf("closed %v, %d connections are counted", inner.closed.Load(), c.running.Load())
	}
	if n, err := c.Write(part); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a later Write: %d, %v", n, err)
	}
}

// TestBatchConnWithDeadline checks that Write returns only when its bytes, and all earlier ones, are written: if
// there is a deadline, or the bytes are a full record.
func TestBatchConnWithDeadline(t *testing.T) {
	for name, p := range map[string][]byte{"deadline": []byte("2"), "full record": make([]byte, directBytes)} {
		c, inner := gated(t)
		mustWrite(t, c, []byte("1"))
		if name == "deadline" {
			if err := c.SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		done := make(chan error, 1)
		go func() {
			_, err := c.Write(p)
			done <- err
		}()
		inner.gate <- nil
		inner.gate <- nil
		select {
		case <-done:
			t.Errorf("%s: Write returns before its bytes are written", name)
		case inner.gate <- nil:
		}
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := inner.all(); len(got) != 3 || string(got[1]) != "1" || !bytes.Equal(got[2], p) {
			t.Errorf("%s: %d writes", name, len(got))
		}
	}
}

// TestBatchConnEndOfLongResponse checks that the record after a full one starts no goroutine, and that the next
// one does.
func TestBatchConnEndOfLongResponse(t *testing.T) {
	inner := &gatedConn{gate: make(chan error, 3)}
	c := batched(t, inner)
	inner.gate <- nil
	inner.gate <- nil
	mustWrite(t, c, make([]byte, directBytes))
	mustWrite(t, c, []byte("end"))
	if n := len(inner.all()); n != 2 || c.running.Load() != 0 {
		t.Errorf("%d writes, %d goroutines; want 2 and none", n, c.running.Load())
	}
	mustWrite(t, c, []byte("next"))
	if c.running.Load() != 1 {
		t.Error("the next response is written directly")
	}
	inner.gate <- nil
	wait.Until(t, "the goroutine has ended", func() bool { return c.running.Load() == 0 })
}

// TestBatchConnKeepsTheOrder writes parts of random sizes over a socket, with and without a deadline, and compares what the
// peer reads.
func TestBatchConnKeepsTheOrder(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan []byte, 1)
	go func() {
		peer, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Error(err)
			got <- nil
			return
		}
		defer peer.Close()
		b, err := io.ReadAll(peer)
		if err != nil {
			t.Error(err)
		}
		got <- b
	}()
	inner, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := batched(t, inner)
	random := rand.New(rand.NewPCG(1, 2))
	var want []byte
	for range 3000 {
		switch random.IntN(50) {
		case 0:
			err = c.SetWriteDeadline(time.Now().Add(time.Hour))
		case 1:
			err = c.SetDeadline(time.Time{})
		}
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 1+random.IntN([]int{100, 5000, 2 * directBytes}[random.IntN(3)]))
		for i := range p {
			p[i] = byte(len(want) + i)
		}
		mustWrite(t, c, p)
		want = append(want, p...)
		clear(p) // the caller may use its bytes again
	}
	if err := c.SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, c, []byte("end"))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if b := <-got; !bytes.Equal(b, append(want, "end"...)) {
		t.Errorf("the peer read %d bytes, want %d equal ones", len(b), len(want)+3)
	}
}

// TestBatchConnLingers checks that bytes which wait when crypto/tls closes the connection get more time than the
// alert of crypto/tls, unless the server stops.
func TestBatchConnLingers(t *testing.T) {
	stopping, stop := context.WithCancel(t.Context())
	inner := &deadlineConn{gatedConn: gatedConn{gate: make(chan error)}}
	c := newBatchConn(inner, new(atomic.Int64), stopping)
	c.batchWrites()
	closing := func() time.Duration {
		t.Helper()
		if err := c.SetWriteDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		return time.Until(inner.deadline)
	}
	if d := closing(); d > 5*time.Second {
		t.Errorf("no bytes wait: deadline in %v", d)
	}
	if err := c.SetWriteDeadline(time.Time{}); err != nil || !inner.deadline.IsZero() {
		t.Errorf("no deadline: %v, %v", inner.deadline, err)
	}
	mustWrite(t, c, []byte("waits"))
	if d := closing(); d < lingerTime-5*time.Second || d > lingerTime {
		t.Errorf("bytes wait: deadline in %v", d)
	}
	stop()
	if d := closing(); d > 5*time.Second {
		t.Errorf("the server stops: deadline in %v", d)
	}
	inner.gate <- nil
	wait.Until(t, "the goroutine has ended", func() bool { return c.running.Load() == 0 })
}

// deadlineConn records the write deadline.
type deadlineConn struct {
	gatedConn
	deadline time.Time
}

func (c *deadlineConn) SetWriteDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

// TestOnlyHTTP2IsBatched checks that writes are not batched if the client or the server does not use HTTP/2: a
// handler may take over such a connection.
func TestOnlyHTTP2IsBatched(t *testing.T) {
	for _, c := range []struct {
		offered, spoken []string
		batched         bool
	}{
		{[]string{"h2", "http/1.1"}, []string{"h2", "http/1.1"}, true},
		{[]string{"http/1.1"}, []string{"h2", "http/1.1"}, false},
		{nil, []string{"h2", "http/1.1"}, false},
		{[]string{"h2"}, []string{"http/1.1"}, false},
	} {
		conn := &stallConn{batches: newBatchConn(&gatedConn{}, new(atomic.Int64), t.Context())}
		inner := &tls.Config{}
		config := &tls.Config{
			NextProtos:         c.spoken,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return inner, nil },
		}
		got, err := BatchHTTP2(config)(&tls.ClientHelloInfo{Conn: conn, SupportedProtos: c.offered})
		if got != inner || err != nil || conn.batches.batched != c.batched {
			t.Errorf("%q offered to %q: batched %v, %v, %v", c.offered, c.spoken, conn.batches.batched, got, err)
		}
	}
}
