package request

import (
	"context"
	"sync/atomic"
	"time"
)

// Tracker collects data for the metrics of a request beyond its path and status. The filters and handlers of the
// request call its methods, also concurrently, and also after the request has timed out. A nil Tracker collects
// nothing.
type Tracker struct {
	flags       atomic.Uint32
	deprecation atomic.Pointer[Deprecation]
	outside     atomic.Int64 // nanoseconds
	body        atomic.Int64 // bytes
	// passed is the time since processStart at which the last of the timed filters was passed. Only the filters use it, on
	// one goroutine.
	passed time.Duration
}

// processStart is the time at which passed starts to count. A difference to it needs only the monotonic clock, which is
// read faster.
var processStart = time.Now()

// The flags of a Tracker.
const (
	served uint32 = 1 << iota
	terminated
	aggregatedTerminated
	aborted
)

func (t *Tracker) set(flag uint32) {
	if t != nil {
		t.flags.Or(flag)
	}
}

func (t *Tracker) has(flags uint32) bool { return t.flags.Load()&flags != 0 }

// Deprecation describes a deprecated version of a resource.
type Deprecation struct {
	// Removed is the release of Kubernetes that does not serve the version any more, such as "1.36"; empty if none is
	// known.
	Removed string
}

// Serve records that the request has a handler. kube-apiserver counts only such requests. deprecation is nil if the
// version is not deprecated.
func (t *Tracker) Serve(deprecation *Deprecation) {
	if t == nil {
		return
	}
	if deprecation != nil {
		t.deprecation.Store(deprecation)
	}
	t.set(served)
}

// Served reports whether Serve was called, and with which deprecation.
func (t *Tracker) Served() (bool, *Deprecation) { return t.has(served), t.deprecation.Load() }

// Terminate records that the server ended the request to protect itself: it refused it because there are too many, or its
// time was up.
func (t *Tracker) Terminate() { t.set(terminated) }

// Terminated reports whether Terminate was called.
func (t *Tracker) Terminated() bool { return t.has(terminated) }

// TerminateAggregated records that the request could not be forwarded to an extension API server.
func (t *Tracker) TerminateAggregated() { t.set(aggregatedTerminated) }

// AggregatedTerminated reports whether TerminateAggregated was called.
func (t *Tracker) AggregatedTerminated() bool { return t.has(aggregatedTerminated) }

// Abort records that the response was cut off.
func (t *Tracker) Abort() { t.set(aborted) }

// Aborted reports whether Abort was called.
func (t *Tracker) Aborted() bool { return t.has(aborted) }

// Special reports whether Terminate, TerminateAggregated or Abort was called.
func (t *Tracker) Special() bool { return t.has(terminated | aggregatedTerminated | aborted) }

// AddOutside adds time that the request spent waiting for webhooks or in a queue. Service level indicators do not count it.
func (t *Tracker) AddOutside(d time.Duration) {
	if t != nil {
		t.outside.Add(int64(d))
	}
}

// Outside returns the sum of the times of AddOutside.
func (t *Tracker) Outside() time.Duration { return time.Duration(t.outside.Load()) }

// SetBody records the size of the body in bytes.
func (t *Tracker) SetBody(bytes int64) {
	if t != nil {
		t.body.Store(bytes)
	}
}

// Body returns the size of the body in bytes; 0 if there was none, or if it was not read.
func (t *Tracker) Body() int64 { return t.body.Load() }

// Pass returns the time since the previous call; 0 for the first one.
func (t *Tracker) Pass() time.Duration {
	now, last := time.Since(processStart), t.passed
	t.passed = now
	if last == 0 {
		return 0
	}
	return now - last
}

// TrackerFrom returns the Tracker of the request of a context, nil if there is none.
func TrackerFrom(ctx context.Context) *Tracker {
	if i, ok := ctx.Value(infoKey).(*Info); ok && i != nil {
		return i.Tracker
	}
	return nil
}
