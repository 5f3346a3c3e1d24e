// Package logwatch detects a blocked log, for example a pipe that nobody reads. Each request that logs something
// then waits forever.
package logwatch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Watch records the calls of the log that have not returned.
type Watch struct {
	now func() time.Time

	mu      sync.Mutex // guards the fields below
	next    int
	running map[int]time.Time // start times of the calls that have not returned
}

// maxTime is the time limit of a call of the log, as in kube-apiserver.
const maxTime = 2 * time.Minute

// New returns a Watch with a clock.
func New(now func() time.Time) *Watch {
	return &Watch{now: now, running: map[int]time.Time{}}
}

// Handler returns a handler that calls h and records the call while it runs.
func (w *Watch) Handler(h slog.Handler) slog.Handler { return &handler{Handler: h, watch: w} }

// Probe is a health check. It fails if a call of the log has taken more than two minutes and has not ended.
func (w *Watch) Probe(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, began := range w.running {
		if took := w.now().Sub(began); took > maxTime {
			return fmt.Errorf("the log has been blocked for %v", took.Round(time.Second))
		}
	}
	return nil
}

func (w *Watch) begin() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	w.running[w.next] = w.now()
	return w.next
}

func (w *Watch) end(call int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, call)
}

type handler struct {
	slog.Handler
	watch *Watch
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	defer h.watch.end(h.watch.begin())
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.watch.Handler(h.Handler.WithAttrs(attrs))
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return h.watch.Handler(h.Handler.WithGroup(name))
}
