package wait_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// failing is a test whose failure is kept.
type failing struct {
	testing.TB
	text string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure runs do to its end, and returns the text that it failed with, "" for none.
func failure(do func(t testing.TB)) string {
	var f failing
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do(&f)
	}()
	<-ended
	return f.text
}

// TestWaitsEnd checks that each wait ends with the effect, here after half of the limit, and returns its value.
func TestWaitsEnd(t *testing.T) {
	for name, do := range map[string]func(t testing.TB, happened func() bool, events <-chan int) int{
		"Until": func(t testing.TB, happened func() bool, _ <-chan int) int {
			wait.Until(t, "it", happened)
			return 7
		},
		"Seen": func(t testing.TB, happened func() bool, _ <-chan int) int {
			wait.Seen(t, "it", func() (bool, string) { return happened(), "nothing" })
			return 7
		},
		"Value": func(t testing.TB, happened func() bool, _ <-chan int) int {
			return wait.Value(t, "it", func() (int, error) {
				if !happened() {
					return 3, errors.New("not yet")
				}
				return 7, nil
			})
		},
		"NoError": func(t testing.TB, happened func() bool, _ <-chan int) int {
			wait.NoError(t, "it", func() error {
				if !happened() {
					return errors.New("not yet")
				}
				return nil
			})
			return 7
		},
		"Receive": func(t testing.TB, _ func() bool, events <-chan int) int { return wait.Receive(t, "it", events) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				const after = wait.Limit / 2
				events := make(chan int, 1)
				time.AfterFunc(after, func() { events <- 7 })
				got := 0
				text := failure(func(t testing.TB) {
					got = do(t, func() bool { return time.Since(begin) >= after }, events)
				})
				if took := time.Since(begin); text != "" || got != 7 || took < after || took > after+100*time.Millisecond {
					t.Errorf("%d after %v, %q; want 7 after %v", got, took, text, after)
				}
			})
		})
	}
}

// TestWaitsInVainSayForWhat checks the limit, and what a failure says.
func TestWaitsInVainSayForWhat(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(t testing.TB)
		want string
	}{
		"Until":   {func(t testing.TB) { wait.Until(t, "the end", func() bool { return false }) }, "for the end: it did not happen"},
		"Seen":    {func(t testing.TB) { wait.Seen(t, "the end", func() (bool, string) { return false, "it is 3" }) }, "for the end: it is 3"},
		"NoError": {func(t testing.TB) { wait.NoError(t, "the end", func() error { return errors.New("e") }) }, "for the end: e"},
		"Value": {func(t testing.TB) {
			wait.Value(t, "the end", func() (int, error) { return 0, errors.New("e") })
		}, "for the end: e"},
		"Receive": {func(t testing.TB) { wait.Receive(t, "the end", make(chan int)) }, "for the end"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				text := failure(test.do)
				if took := time.Since(begin); took < wait.Limit || took > wait.Limit+100*time.Millisecond {
					t.Errorf("the wait ended after %v", took)
				}
				if !strings.HasPrefix(text, "waited 1m0s ") || !strings.HasSuffix(text, test.want) {
					t.Errorf("the failure is %q, want the end %q", text, test.want)
				}
			})
		})
	}
}

// TestReceiveOfClosedChannel checks that the end of a channel ends the wait for it.
func TestReceiveOfClosedChannel(t *testing.T) {
	ended := make(chan struct{})
	close(ended)
	wait.Receive(t, "the end", ended)
}
