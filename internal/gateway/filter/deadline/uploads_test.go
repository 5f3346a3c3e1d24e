package deadline

import (
	"context"
	"io"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// slowBody is a body whose reader returns some time after the connection's deadline was set.
type slowBody struct {
	reading, cut chan struct{}
	left         atomic.Bool
}

func (b *slowBody) Read([]byte) (int, error) {
	close(b.reading)
	<-b.cut
	// A request that does not wait would end in this time. The test cannot notice that a request waits, because it
	// waits for a mutex: the clock of testing/synctest does not go on while a goroutine waits for a mutex.
	time.Sleep(20 * time.Millisecond)
	b.left.Store(true)
	return 0, io.ErrUnexpectedEOF
}

func (b *slowBody) Close() error { return nil }

// connection is a ResponseWriter whose connection has deadlines.
type connection struct {
	*httptest.ResponseRecorder
	cut chan struct{}
}

func (c *connection) SetReadDeadline(time.Time) error {
	close(c.cut)
	return nil
}

// TestARequestEndsAfterItsReader checks that a request whose body was cut does not end while the body is read, and
// that nobody can begin to read the body after that.
func TestARequestEndsAfterItsReader(t *testing.T) {
	b := &slowBody{reading: make(chan struct{}), cut: make(chan struct{})}
	u := newUploads(t.Context(), time.Hour).begin(&connection{httptest.NewRecorder(), b.cut}, b)
	ctx, cancel := context.WithCancel(t.Context())
	done := u.CutAt(ctx)
	go func() { _, _ = u.Read(nil) }() // the handler, which is not waited for
	<-b.reading
	cancel()
	if done(); !b.left.Load() {
		t.Error("the request ended while its body was read")
	}
	if _, err := u.Read(nil); err == nil { // a second read of slowBody would panic
		t.Error("a body that was cut is read")
	}
}
