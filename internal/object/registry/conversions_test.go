package registry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// TestConversionsAreShared starts many reads of one object while a call for it runs. All get its result, or its
// error.
func TestConversionsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c conversions
		o, calls := new(cache.Object), 0
		down := errors.New("down")
		for _, want := range []error{nil, down, nil} {
			calls = 0
			results := make(chan error, 50)
			for range cap(results) {
				go func() {
					item, err := c.share(t.Context(), o, func() ([]byte, error) {
						calls++
						time.Sleep(time.Second)
						return []byte("item"), want
					})
					if string(item) != "item" {
						err = errors.New("not the result of the call")
					}
					results <- err
				}()
			}
			for range cap(results) {
				if err := <-results; !errors.Is(err, want) {
					t.Errorf("error %v, want %v", err, want)
				}
			}
			if calls != 1 || len(c.running) != 0 {
				t.Errorf("%d calls, want 1; %d left", calls, len(c.running))
			}
		}
	})
}

// TestConversionsOfRequestsThatEnd ends requests while the call of one of them runs: those that are left call again, and
// nobody waits longer than its own request.
func TestConversionsOfRequestsThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c conversions
		o := new(cache.Object)
		convert := func(ctx context.Context) error {
			_, err := c.share(ctx, o, func() ([]byte, error) {
				select {
				case <-time.After(time.Minute):
					return nil, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			})
			return err
		}
		ends := make(map[time.Duration]chan error)
		for _, after := range []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second, time.Hour} {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			done := make(chan error, 1)
			ends[after] = done
			go func() { done <- convert(ctx) }()
			synctest.Wait() // the first one makes the call
		}
		begun := time.Now()
		for after, done := range ends {
			switch err := <-done; {
			case after == time.Hour && err != nil:
				t.Errorf("the one that stays: %v", err)
			case after != time.Hour && !errors.Is(err, context.DeadlineExceeded):
				t.Errorf("the one of %s: %v", after, err)
			}
		}
		if took := time.Since(begun); took > 2*time.Minute {
			t.Errorf("all took %s", took)
		}
	})
}
