package etcd

import (
	"context"
	"errors"
	"time"
)

const (
	// patience is how long a request that may be repeated is.
	patience              = 5 * time.Second
	firstRetry, lastRetry = 20 * time.Millisecond, 300 * time.Millisecond

	// A member that is paused, or that the network has cut off, takes a request and
	// does not answer it until keepAliveEvery and keepAliveWait have passed. The first
	// attempt is given up after such a time and made again, most often at another
	// member; each further one has twice as long, because the answer may be large.
	shortAttempt = time.Second     // of what is answered at once
	readAttempt  = 3 * time.Second // of what may be a page of large objects
	// longestAttempts bounds all attempts that were given up: longer than etcd itself
	// waits for a quorum.
	longestAttempts = 15 * time.Second
)

// repeat repeats, for a limited time, an operation that is safe to repeat and failed because a member stopped, does
// not answer, or is electing a leader. attempt limits the first attempt. suspect is called for each attempt that
// took too long.
func repeat[R any](
	ctx context.Context, suspect func(), attempt time.Duration, do func(context.Context) (R, error),
) (R, error) {
	began, limit := time.Now(), patience
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		tried := time.Now()
		limited, cancel := context.WithTimeout(ctx, attempt)
		r, err := do(limited)
		silent := err != nil && ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded)
		cancel()
		if err != nil && time.Since(tried) >= shortAttempt {
			suspect()
			limit = longestAttempts // a member was waited for that may be the only bad one
		}
		if silent {
			attempt *= 2
		}
		if err == nil || !silent && !transient(err) || time.Since(began)+pause > limit {
			return r, err
		}
		select {
		case <-ctx.Done():
			return r, err
		case <-time.After(pause):
		}
	}
}
