package server

import (
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"
)

// TestABlockedLogIsUnhealthy has a log that nobody reads, and others that write nothing or return quickly.
func TestABlockedLogIsUnhealthy(t *testing.T) {
	var now atomic.Int64 // seconds
	w := newLogWatch(func() time.Time { return time.Unix(now.Load(), 0) })
	quick := slog.New(w.handler(slog.NewTextHandler(io.Discard, nil)))
	quick.Info("a")
	slog.New(w.handler(slog.DiscardHandler)).Error("b")
	now.Store(1000)
	if err := w.probe(t.Context()); err != nil {
		t.Errorf("all calls have ended: %v", err)
	}
	r, pipe := io.Pipe()
	blocked := slog.New(w.handler(slog.NewTextHandler(pipe, nil))).With("a", 1).WithGroup("g")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		blocked.Info("c")
	}()
	for end := time.Now().Add(10 * time.Second); len(w.calls()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the call of the log did not begin within 10 s")
		}
	}
	now.Add(60)
	if err := w.probe(t.Context()); err != nil {
		t.Errorf("after a minute: %v", err)
	}
	now.Add(61)
	if err := w.probe(t.Context()); err == nil {
		t.Error("after two minutes the log is not found to be blocked")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
	if err := w.probe(t.Context()); err != nil {
		t.Errorf("after the call has ended: %v", err)
	}
}

// calls returns when the running calls began.
func (w *logWatch) calls() (out []time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, began := range w.running {
		out = append(out, began)
	}
	return out
}
