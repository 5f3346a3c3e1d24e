package sink

import (
	"context"
	"errors"
	"maps"

	"github.com/keelson-dev/keelson/internal/machinery/audit"
)

// truncatedKey is the annotation of events whose objects were removed.
const truncatedKey = "audit.k8s.io/truncated"

var errTooLarge = errors.New("event is too large even after truncating")

// Truncate limits the size of events and batches. It removes the objects from events that are
// too large, and drops events that are still too large then.
type Truncate struct {
	Next audit.Sink
	// MaxEventSize and MaxBatchSize are sizes of the encoded events in bytes.
	MaxEventSize, MaxBatchSize int64
	Report                     audit.Report
}

// Write implements audit.Sink.
func (t *Truncate) Write(ctx context.Context, events []*audit.Event) bool {
	ok := true
	var batch, dropped []*audit.Event
	var size int64
	for _, e := range events {
		e, n := t.fit(e)
		if n > t.MaxEventSize {
			dropped = append(dropped, e)
			continue
		}
		if len(batch) > 0 && size+n > t.MaxBatchSize {
			ok = t.Next.Write(ctx, batch) && ok
			batch, size = nil, 0
		}
		batch, size = append(batch, e), size+n
	}
	if len(batch) > 0 {
		ok = t.Next.Write(ctx, batch) && ok
	}
	if len(dropped) > 0 {
		t.Report("truncate", errTooLarge, dropped)
	}
	return ok
}

// fit returns the event, without its objects if it is too large with them, and its size in
// bytes.
func (t *Truncate) fit(e *audit.Event) (*audit.Event, int64) {
	n := size(e)
	level, _ := audit.ParseLevel(e.Level)
	if n <= t.MaxEventSize || level < audit.Request {
		return e, n
	}
	small := *e
	small.RequestObject, small.ResponseObject = nil, nil
	small.Annotations = maps.Clone(e.Annotations)
	if small.Annotations == nil {
		small.Annotations = map[string]string{}
	}
	small.Annotations[truncatedKey] = "true"
	return &small, size(&small)
}

// size returns the length of the event as a line of a log, in bytes.
func size(e *audit.Event) int64 { return int64(len(audit.AppendEvent(nil, e)) + len("\n")) }

// Close implements audit.Sink.
func (t *Truncate) Close(ctx context.Context) error { return t.Next.Close(ctx) }
