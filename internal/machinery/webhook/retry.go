package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"
)

// A Backoff says how often something is tried, and how long is waited between.
type Backoff struct {
	// Tries is how often, with the first; 1 if it is less.
	Tries int
	// First is how long is waited after the first, Factor by how much longer after
	// each other (1 if zero), and Jitter what part of that is added at most, at random.
	First          time.Duration
	Factor, Jitter float64
}

// DefaultBackoff is that of kube-apiserver's authentication and authorization
// webhooks, whose first delay is half a second unless a flag says otherwise.
func DefaultBackoff() Backoff {
	return Backoff{Tries: 5, First: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2}
}

// Retry calls f until its error is nil or not again(error), the tries are used up or the
// context ends. It returns the last error of f, if there is one.
func Retry(ctx context.Context, b Backoff, again func(error) bool, f func(context.Context) error) error {
	wait := b.First
	for try := 1; ; try++ {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("webhook call failed: %w", err)
		}
		err := f(ctx)
		if err == nil || !again(err) || try >= b.Tries {
			return err
		}
		timer := time.NewTimer(wait + time.Duration(rand.Float64()*b.Jitter*float64(wait)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		if b.Factor != 0 {
			wait = time.Duration(float64(wait) * b.Factor)
		}
	}
}

func isConnectionLost(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) ||
		err != nil && strings.Contains(err.Error(), "http2: client connection lost")
}
