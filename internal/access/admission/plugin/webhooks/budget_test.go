package webhooks

import (
	"testing"
	"time"
)

// step is one write, which calls the webhook or skips it. after is the time since the step before.
type step struct {
	after, took time.Duration
	result      result
	want        turn
	// skipped and resumed are the expected results of end.
	skipped, resumed bool
}

func TestBudget(t *testing.T) {
	const second, minute = time.Second, time.Minute
	for name, steps := range map[string][]step{
		"successes cost nothing": {
			{0, 9 * second, succeeded, plain, false, false}, {0, 9 * second, succeeded, plain, false, false},
		},
		"failures beyond the limit": {
			{0, 4 * second, failed, plain, false, false}, {second, second, failed, plain, false, false},
			{second, second, failed, plain, true, false}, {second, 0, 0, skip, false, false},
		},
		"failures far apart": {
			{0, 4 * second, failed, plain, false, false}, {minute, 4 * second, failed, plain, false, false},
			{2 * minute, 4 * second, failed, plain, false, false},
		},
		"fast failures": {{0, 0, failed, plain, false, false}, {0, 0, failed, plain, false, false}},
		"a trial that fails": {
			{0, 6 * second, failed, plain, true, false}, {skipTime - 1, 0, 0, skip, false, false},
			{1, second, failed, trial, false, false}, {skipTime - 1, 0, 0, skip, false, false},
			{1, second, succeeded, trial, false, true}, {0, 4 * second, failed, plain, false, false},
		},
		"a trial whose client goes away": {
			{0, 6 * second, failed, plain, true, false}, {skipTime, second, canceled, trial, false, false},
			{0, second, succeeded, trial, false, true},
		},
		"clients that go away": {{0, 9 * second, canceled, plain, false, false}, {0, 0, succeeded, plain, false, false}},
	} {
		b, now := newBudget(5*second), time.Unix(1000, 0)
		for i, s := range steps {
			now = now.Add(s.after)
			if got := b.begin(now); got != s.want {
				t.Errorf("%s, step %d: turn %d, want %d", name, i, got, s.want)
			}
			if s.want == skip {
				continue
			}
			now = now.Add(s.took)
			if skipped, resumed := b.end(s.want, s.result, now, s.took); skipped != s.skipped || resumed != s.resumed {
				t.Errorf("%s, step %d: skipped %t, resumed %t", name, i, skipped, resumed)
			}
		}
	}
}

// TestBudgetOfConcurrentCalls checks that one write tries the webhook again while others skip it, and that the
// results of calls that began before the trial do not count.
func TestBudgetOfConcurrentCalls(t *testing.T) {
	b, now := newBudget(time.Second), time.Unix(1000, 0)
	for range 3 {
		if got := b.begin(now); got != plain {
			t.Fatalf("turn %d", got)
		}
	}
	now = now.Add(2 * time.Second)
	if skipped, _ := b.end(plain, failed, now, 2*time.Second); !skipped {
		t.Error("the webhook is called after a failing call that took longer than the limit")
	}
	if skipped, _ := b.end(plain, failed, now, 2*time.Second); skipped {
		t.Error("the same webhook is reported twice")
	}
	now = now.Add(skipTime)
	if got := b.begin(now); got != trial {
		t.Errorf("turn %d", got)
	}
	if _, resumed := b.end(plain, succeeded, now, 0); resumed {
		t.Error("a call that began earlier ends the skipping")
	}
	if got := b.begin(now); got != skip {
		t.Errorf("turn %d beside the trial", got)
	}
}

func TestNoBudget(t *testing.T) {
	b, now := newBudget(0), time.Unix(1000, 0)
	for range 3 {
		if got := b.begin(now); got != plain {
			t.Errorf("turn %d", got)
		}
		if skipped, resumed := b.end(plain, failed, now, time.Hour); skipped || resumed {
			t.Error("a webhook without a budget is skipped")
		}
	}
}
