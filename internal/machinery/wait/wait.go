// Package wait has the waits of tests. Each is for an effect, not for a time: it ends as soon as the effect is there, and
// after Limit the test fails with what it waited for. The functions end the test as Fatal does, so only the goroutine of
// the test may call them.
//
// A wait in a bubble of testing/synctest uses the clock of the bubble: it takes no real time, even if it fails.
package wait

import (
	"testing"
	"time"
)

// Limit is how long a test waits for what must happen. Only failures take so long. It is far above what a loaded machine
// with the race detector needs.
const Limit = time.Minute

// The pause between two looks grows from firstPause to lastPause: most effects come within milliseconds. A look is
// often a request, and too many requests would slow down an effect that takes seconds.
const (
	firstPause = time.Millisecond
	lastPause  = 20 * time.Millisecond
)

// Until waits until holds returns true. what completes the sentence "waited for ...".
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Seen(t, what, func() (bool, string) { return holds(), "it did not happen" })
}

// Seen waits until look returns true. The message of a failure contains the text seen of the last look, which
// should say what was there instead.
func Seen(t testing.TB, what string, look func() (ok bool, seen string)) {
	t.Helper()
	SeenWithin(t, Limit, what, look)
}

// SeenWithin is Seen with a limit of its own, for what may take longer than Limit.
func SeenWithin(t testing.TB, limit time.Duration, what string, look func() (ok bool, seen string)) {
	t.Helper()
	pause := firstPause
	for end := time.Now().Add(limit); ; time.Sleep(pause) {
		ok, seen := look()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s: %s", limit, what, seen)
		}
		pause = min(2*pause, lastPause)
	}
}

// Value waits until get returns no error, and returns its value. A failure has the last error.
func Value[T any](t testing.TB, what string, get func() (T, error)) T {
	t.Helper()
	var value T
	Seen(t, what, func() (bool, string) {
		v, err := get()
		if err != nil {
			return false, err.Error()
		}
		value = v
		return true, ""
	})
	return value
}

// NoError waits until try returns nil. A failure has the last error.
func NoError(t testing.TB, what string, try func() error) {
	t.Helper()
	Value(t, what, func() (struct{}, error) { return struct{}{}, try() })
}

// Receive waits for a value of a channel, or until the channel is closed, and returns what was received.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	limit := time.NewTimer(Limit)
	defer limit.Stop()
	select {
	case v := <-from:
		return v
	case <-limit.C:
	}
	t.Fatalf("waited %v for %s", Limit, what)
	panic("not reached")
}
