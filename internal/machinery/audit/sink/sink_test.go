package sink

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// backend keeps the events that it gets. If hang is set, it waits first until hang is closed.
type backend struct {
	hang    chan struct{}
	refuses bool

	mu      sync.Mutex // guards batches
	batches [][]*audit.Event
}

func (b *backend) Write(_ context.Context, events []*audit.Event) bool {
	if b.hang != nil {
		<-b.hang
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.batches = append(b.batches, events)
	return !b.refuses
}

func (b *backend) ids() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, batch := range b.batches {
		for _, e := range batch {
			out = append(out, string(e.AuditID))
		}
	}
	return strings.Join(out, "")
}

// reports collects the audit IDs of lost events, by the part that lost them and the error.
type reports struct {
	mu   sync.Mutex // guards lost
	lost map[string]string
}

func (r *reports) report(part string, err error, events []*audit.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost == nil {
		r.lost = map[string]string{}
	}
	for _, e := range events {
		r.lost[part+": "+err.Error()] += string(e.AuditID)
	}
}

func (r *reports) of(part string, err error) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost[part+": "+err.Error()]
}

func event(id string) []*audit.Event { return []*audit.Event{{AuditID: types.UID(id)}} }

func TestBatchesAreFull(t *testing.T) {
	b, r := &backend{}, &reports{}
	s := NewBatch(b, BatchOptions{BufferSize: 10, MaxBatchSize: 3, MaxBatchWait: time.Hour}, r.report)
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		if !s.Write(t.Context(), event(id)) {
			t.Error("refused")
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(b.batches) != 3 || len(b.batches[0]) != 3 || b.ids() != "abcdefg" {
		t.Errorf("%d batches, %s", len(b.batches), b.ids())
	}
	s.Write(t.Context(), event("z"))
	if r.of(buffered, errClosed) != "z" {
		t.Errorf("after the end: %v", r.lost)
	}
}

func TestBatchesWaitNoLongerThanTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := &backend{}, &reports{}
		const longest = time.Hour
		s := NewBatch(b, BatchOptions{BufferSize: 10, MaxBatchSize: 100, MaxBatchWait: longest}, r.report)
		s.Write(t.Context(), event("a"))
		time.Sleep(longest - 1)
		synctest.Wait()
		if got := b.ids(); got != "" {
			t.Errorf("%s was sent before its time", got)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := b.ids(); got != "a" {
			t.Errorf("after %v, %q was sent", longest, got)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestHangingBackendLosesEventsNotRequests checks that events are dropped when the buffer is full, so that the memory
// is limited.
func TestHangingBackendLosesEventsNotRequests(t *testing.T) {
	b, r := &backend{hang: make(chan struct{})}, &reports{}
	s := NewBatch(b, BatchOptions{BufferSize: 2, MaxBatchSize: 1, Concurrent: true}, r.report)
	const sent = 200
	for range sent {
		if !s.Write(t.Context(), event("x")) { // would hang here
			t.Fatal("refused")
		}
	}
	if lost := len(r.of(buffered, errFull)); lost < sent-maxConcurrentBatches-2-1 {
		t.Errorf("%d events lost: too many are kept", lost)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("closing: %v", err)
	}
	close(b.hang)
	<-s.done
}

func TestThrottle(t *testing.T) {
	b, r := &backend{}, &reports{}
	s := NewBatch(b, BatchOptions{BufferSize: 10, MaxBatchSize: 1, Throttle: true, QPS: 0.0001, Burst: 2}, r.report)
	for _, id := range []string{"a", "b", "c"} {
		s.Write(t.Context(), event(id))
	}
	wait.Seen(t, "a and b to be sent", func() (bool, string) { return b.ids() == "ab", b.ids() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = s.Close(ctx) // the third batch does not begin
	<-s.done
	if b.ids() != "ab" || r.of(buffered, errClosed) != "c" {
		t.Errorf("%s, lost %v", b.ids(), r.lost)
	}
}

func TestBlockingWaits(t *testing.T) {
	b, r := &backend{}, &reports{}
	s := NewBlocking(b, true, time.Hour, r.report)
	if !s.Write(t.Context(), event("a")) || b.ids() != "a" {
		t.Error("not written")
	}
	b.refuses = true
	if s.Write(t.Context(), event("b")) {
		t.Error("strict: a refused event lets the request go on")
	}
	if !NewBlocking(b, false, time.Hour, r.report).Write(t.Context(), event("c")) {
		t.Error("a refused event stops the request")
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestBlockingHasABudget checks that Write waits only once for a backend that hangs, and waits again only after
// the backend has written something.
func TestBlockingHasABudget(t *testing.T) {
	b, r := &backend{hang: make(chan struct{})}, &reports{}
	s := NewBlocking(b, false, time.Millisecond, r.report)
	if !s.Write(t.Context(), event("a")) {
		t.Error("the request does not go on")
	}
	s.budget = time.Hour // nothing below may wait
	if !s.Write(t.Context(), event("b")) {
		t.Error("the request does not go on")
	}
	strict := NewBlocking(b, true, time.Millisecond, r.report)
	if strict.Write(t.Context(), event("c")) {
		t.Error("strict: the request goes on")
	}
	close(b.hang)
	if err := errors.Join(s.Close(t.Context()), strict.Close(t.Context())); err != nil {
		t.Error(err)
	}
	if got := b.ids(); len(got) != 3 {
		t.Errorf("late events are lost: %s", got)
	}
	if s.overdue.Load() {
		t.Error("the backend is not waited for though it works again")
	}
}

func TestBlockingWaitsNoLongerThanTheRequest(t *testing.T) {
	b, r := &backend{hang: make(chan struct{})}, &reports{}
	defer close(b.hang)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if NewBlocking(b, true, time.Hour, r.report).Write(ctx, event("a")) {
		t.Error("taken")
	}
}

// TestBlockingIsBounded checks that the number of writes that wait for a hanging backend is limited.
func TestBlockingIsBounded(t *testing.T) {
	b, r := &backend{hang: make(chan struct{})}, &reports{}
	defer close(b.hang)
	s := NewBlocking(b, true, time.Hour, r.report)
	s.overdue.Store(true)
	for range maxPending + 3 {
		s.Write(t.Context(), event("x"))
	}
	if got := r.of(buffered, errFull); got != "xxx" {
		t.Errorf("%d events were refused", len(got))
	}
}

func TestTruncate(t *testing.T) {
	b, r := &backend{}, &reports{}
	big := &runtime.Unknown{Raw: []byte(`"` + strings.Repeat("x", 1000) + `"`)}
	e := func(id string, level auditv1.Level) *audit.Event {
		return &audit.Event{AuditID: types.UID(id), Level: level, RequestObject: big,
			Annotations: map[string]string{"k": "v"}}
	}
	long := e("c", auditv1.LevelRequest)
	long.RequestURI = strings.Repeat("u", 1000)
	small := &audit.Event{AuditID: "d", Level: auditv1.LevelRequest, RequestObject: &runtime.Unknown{Raw: []byte(`{}`)}}
	first := e("a", auditv1.LevelRequest)
	s := &Truncate{Next: NewBlocking(b, true, time.Hour, r.report), MaxEventSize: 450, MaxBatchSize: 450, Report: r.report}
	if !s.Write(t.Context(),
		[]*audit.Event{first, e("b", auditv1.LevelMetadata), long, small, e("e", auditv1.LevelRequestResponse)}) {
		t.Error("refused")
	}
	if got := b.ids(); got != "ade" || len(b.batches) < 2 {
		t.Errorf("%s in %d batches", got, len(b.batches))
	}
	if got := r.of("truncate", errTooLarge); got != "bc" {
		t.Errorf("dropped: %v", r.lost)
	}
	got := b.batches[0][0]
	if got.RequestObject != nil || got.Annotations[truncatedKey] != "true" || got.Annotations["k"] != "v" {
		t.Errorf("%s", audit.AppendEvent(nil, got))
	}
	if first.RequestObject == nil || len(first.Annotations) != 1 {
		t.Error("the shared event was changed")
	}
}
