package etcd

import (
	"context"
	"errors"
	"time"
)

const (
	// retryTime is for how long a request may be retried.
	retryTime                    = 5 * time.Second
	minRetryPause, maxRetryPause = 20 * time.Millisecond, 300 * time.Millisecond

	// A member that is suspended or that cannot be reached accepts a request and does not answer it until
	// keepAliveInterval and keepAliveTimeout have passed. Therefore the first attempt ends after one of these timeouts,
	// and the request is sent again, usually to another member. The timeout doubles with each attempt, because the answer
	// may be large.
	shortAttemptTimeout = time.Second     // for requests with a small answer
	readAttemptTimeout  = 3 * time.Second // for requests whose answer may be a page of large objects
	// maxRetryTime replaces retryTime after an attempt that took long. It is longer than the time for which etcd
	// itself waits for a quorum.
	maxRetryTime = 15 * time.Second
)

// retry retries an operation for a limited time. The operation must be safe to repeat. It is repeated if it failed
// because a member stopped, does not answer, or is electing a leader. attempt is the timeout of the first attempt.
// suspect is called after each attempt that got no answer within its timeout.
func retry[R any](
	ctx context.Context, suspect func(), attempt time.Duration, do func(context.Context) (R, error),
) (R, error) {
	began, limit := time.Now(), retryTime
	for pause := minRetryPause; ; pause = min(2*pause, maxRetryPause) {
		tried := time.Now()
		limited, cancel := context.WithTimeout(ctx, attempt)
		r, err := do(limited)
		silent := err != nil && ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded)
		cancel()
		if err != nil && time.Since(tried) >= shortAttemptTimeout {
			suspect()
			limit = maxRetryTime // other members may answer, so try for longer
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
