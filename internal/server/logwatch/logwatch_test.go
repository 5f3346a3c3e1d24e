package logwatch

import (
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// TestABlockedLogIsUnhealthy has a log that nobody reads, and others that write nothing or return quickly.
func TestABlockedLogIsUnhealthy(t *testing.T) {
	var now atomic.Int64 // seconds
	w := New(func() time.Time { return time.Unix(now.Load(), 0) })
	quick := slog.New(w.Handler(slog.NewTextHandler(io.Discard, nil)))
	quick.Info("a")
	slog.New(w.Handler(slog.DiscardHandler)).Error("b")
	now.Store(1000)
	if err := w.Probe(t.Context()); err != nil {
		t.Errorf("all calls have ended: %v", err)
	}
	r, pipe := io.Pipe()
	blocked := slog.New(w.Handler(slog.NewTextHandler(pipe, nil))).With("a", 1).WithGroup("g")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		blocked.Info("c")
	}()
	wait.Until(t, "the call of the log to begin", func() bool { return len(w.calls()) > 0 })
	now.Add(60)
	if err := w.Probe(t.Context()); err != nil {
		t.Errorf("after a minute: %v", err)
	}
	now.Add(61)
	if err := w.Probe(t.Context()); err == nil {
		t.Error("after two minutes the log is not found to be blocked")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
	if err := w.Probe(t.Context()); err != nil {
		t.Errorf("after the call has ended: %v", err)
	}
}

// calls returns the start times of the running calls.
func (w *Watch) calls() (out []time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, began := range w.running {
		out = append(out, began)
	}
	return out
}
