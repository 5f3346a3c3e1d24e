package gate_test

import (
	"context"
	"errors"
	"testing"

	"github.com/keelson-dev/keelson/internal/controller/gate"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// TestWhile opens and closes a gate with two conditions, and checks when the work behind it runs.
func TestWhile(t *testing.T) {
	var g gate.Gate
	first, second := g.Condition(), g.Condition()
	part := activity.New().Part("work")
	g.Track(part)
	running := make(chan bool)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- g.While(ctx, func(ctx context.Context) error {
			running <- true
			<-ctx.Done()
			running <- false
			return errors.New("an error after the end is not returned")
		})
	}()
	expect := func(want bool) {
		t.Helper()
		if got := wait.Receive(t, "work behind the gate", running); got != want {
			t.Fatalf("the work runs: %v, want %v", got, want)
		}
	}
	first(true) // the second is unknown
	second(false)
	second(true)
	expect(true)
	first(true) // as before
	second(false)
	expect(false)
	first(false)
	second(true)
	first(true)
	expect(true)
	stop()
	expect(false)
	if err := wait.Receive(t, "the end of While", done); err != nil {
		t.Error(err)
	}
}

// TestWorkThatEnds checks that work behind an open gate runs once, and that its error is returned.
func TestWorkThatEnds(t *testing.T) {
	var open gate.Gate
	for _, want := range []error{nil, errors.New("failed")} {
		if err := open.While(t.Context(), func(context.Context) error { return want }); err != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
}
