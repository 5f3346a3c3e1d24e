package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// logWatch detects that the log is blocked, for example because its pipe is not read. Each request that logs something
// then hangs.
type logWatch struct {
	now func() time.Time

	mu      sync.Mutex // guards what follows
	next    int
	running map[int]time.Time // when the calls began that have not ended
}

// maxLogTime is the time limit of a call of the log, as in kube-apiserver.
const maxLogTime = 2 * time.Minute

func newLogWatch(now func() time.Time) *logWatch {
	return &logWatch{now: now, running: map[int]time.Time{}}
}

// handler returns a handler that calls h and is watched.
func (w *logWatch) handler(h slog.Handler) slog.Handler { return &watchedHandler{Handler: h, watch: w} }

// probe fails if a call of the log has taken too long and has not ended.
func (w *logWatch) probe(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, began := range w.running {
		if took := w.now().Sub(began); took > maxLogTime {
			return fmt.Errorf("the log has been blocked for %v", took.Round(time.Second))
		}
	}
	return nil
}

func (w *logWatch) begin() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	w.running[w.next] = w.now()
	return w.next
}

func (w *logWatch) end(call int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, call)
}

type watchedHandler struct {
	slog.Handler
	watch *logWatch
}

// Handle implements slog.Handler.
func (h *watchedHandler) Handle(ctx context.Context, r slog.Record) error {
	defer h.watch.end(h.watch.begin())
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *watchedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.watch.handler(h.Handler.WithAttrs(attrs))
}

// WithGroup implements slog.Handler.
func (h *watchedHandler) WithGroup(name string) slog.Handler {
	return h.watch.handler(h.Handler.WithGroup(name))
}
