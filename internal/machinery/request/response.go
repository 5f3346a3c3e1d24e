package request

import "context"

// Response lets handlers report the memory that a request takes: for its response, which a client may read slowly
// or not at all, and for data that is needed to make the response.
type Response interface {
	// Hold counts n bytes of memory until the request ends and returns true. It returns false and counts nothing if that
	// is more than the user may have.
	Hold(n int64) bool
	// Charge counts n bytes until the request ends, even if that is more than the user may have.
	Charge(n int64)
	// ReleaseMemory ends the count of all bytes of Hold and Charge before the request ends.
	ReleaseMemory()
	// Keep is Hold for memory that the request takes until it ends, such as that of its selectors: ReleaseMemory and InitialEventsSent do
	// not end the count.
	Keep(n int64) bool
	// InitialEventsSent notes that a watch has sent its initial state.
	InitialEventsSent()
}

// ResponseFrom returns the Response of the request of a context. The server's own requests have one that counts
// nothing.
func ResponseFrom(ctx context.Context) Response {
	if i := InfoFrom(ctx); i != nil && i.Response != nil {
		return i.Response
	}
	return uncounted{}
}

type uncounted struct{}

func (uncounted) Hold(int64) bool    { return true }
func (uncounted) Charge(int64)       {}
func (uncounted) ReleaseMemory()     {}
func (uncounted) Keep(int64) bool    { return true }
func (uncounted) InitialEventsSent() {}

const (
	// FreeMemory is the number of bytes of a response that are not counted, because they are in the buffers of the
	// connection.
	FreeMemory = 4 << 10
	// maxHeld is the largest number of bytes that one call counts, even for a larger response. It is a quarter of
	// inflight.ResponseBudget, so that a response of any size can be sent.
	maxHeld = 32 << 20
)

// HoldMemory counts n bytes of memory that a response takes until its client has read it, or its time is up. It is called
// before the status is sent. It returns false if the user has too many responses that are not read.
func HoldMemory(ctx context.Context, n int) bool {
	return n <= FreeMemory || ResponseFrom(ctx).Hold(int64(min(n, maxHeld)))
}

// ChargeMemory is HoldMemory for the response to a write. The write has happened, so the response is never
// refused.
func ChargeMemory(ctx context.Context, n int) {
	if n > FreeMemory {
		ResponseFrom(ctx).Charge(int64(min(n, maxHeld)))
	}
}
