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

// A Backoff is the number of attempts of a call and the delays between them.
type Backoff struct {
	// Tries is the number of attempts, including the first. Values below 1 mean 1.
	Tries int
	// First is the delay after the first attempt. Each further delay is longer by Factor; zero means 1.
	First  time.Duration
	Factor float64
	// Jitter is the largest part of a delay that is added to it at random.
	Jitter float64
}

// DefaultBackoff returns the backoff of kube-apiserver's authentication and authorization webhooks. Flags may change First.
func DefaultBackoff() Backoff {
	return Backoff{Tries: 5, First: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2}
}

// Retry calls f until it succeeds, again returns false for its error, b.Tries attempts have failed, or ctx ends. It
// returns the last error of f, or the error of ctx if ctx ended before the first call.
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
