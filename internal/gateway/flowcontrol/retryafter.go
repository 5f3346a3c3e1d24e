package flowcontrol

import "time"

const (
	// maxRetryAfter is the largest value of Retry-After, in seconds.
	maxRetryAfter = 32
	// refusalsPerSecond is the rate of refusals above which Retry-After grows.
	refusalsPerSecond = 3
)

// retryAfter computes the time after which refused clients of a level should try again. A value of v seconds is
// used for v seconds. If more than a few clients are refused in each of these seconds, the next value is twice as
// long; otherwise it is shorter by a second. The zero retryAfter begins with one second.
type retryAfter struct {
	seconds  int
	since    time.Duration // when the value was chosen
	refusals int           // since then
}

// refused counts a refusal, and returns the value for it.
func (r *retryAfter) refused(now time.Duration) int {
	switch holds := time.Duration(r.seconds) * time.Second; {
	case r.seconds == 0:
		*r = retryAfter{seconds: 1, since: now}
	case now-r.since < holds:
	case r.refusals >= refusalsPerSecond*r.seconds && now-r.since < 2*holds:
		*r = retryAfter{seconds: min(2*r.seconds, maxRetryAfter), since: now}
	default:
		// Nothing was refused for a while, or only little.
		passed := int((now - r.since) / time.Second)
		*r = retryAfter{seconds: max(1, r.seconds-max(1, passed/r.seconds)), since: now}
	}
	r.refusals++
	return r.seconds
}
