package webhooks

import (
	"sync"
	"time"
)

const (
	// budgetWindow is the time in which failing calls may use the budget.
	budgetWindow = time.Minute
	// skipTime is the time for which a webhook is skipped before one write tries it again.
	skipTime = 30 * time.Second
)

// budget bounds the time that failing calls of one webhook cost. If the failing calls of one window take longer than
// the limit together, the webhook is skipped for skipTime. Then one write calls it: if that succeeds the webhook is
// called as before, else it is skipped for skipTime again. Calls that began before the limit was reached are not
// interrupted. A nil budget has no limit.
//
// The methods get the current time as an argument. They may be called concurrently.
type budget struct {
	limit time.Duration

	mu sync.Mutex // guards what follows
	// since is the time of the first failure in the window, with which the window began. spent is the time that
	// failing calls of the window took.
	since time.Time
	spent time.Duration
	// skipped means that the webhook is not called until the time until. After that, trying means that a call is in
	// progress whose result decides whether it stays skipped.
	skipped, trying bool
	until           time.Time
}

// turn decides whether a write calls a webhook.
type turn int

const (
	skip  turn = iota // do not call it
	plain             // call it
	trial             // call it; the result decides whether it is skipped any longer
)

// newBudget returns a budget; nil if there is no limit.
func newBudget(limit time.Duration) *budget {
	if limit <= 0 {
		return nil
	}
	return &budget{limit: limit}
}

// begin decides whether a write that begins now may call the webhook. The caller calls end after plain and trial.
func (b *budget) begin(now time.Time) turn {
	if b == nil {
		return plain
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.skipped:
		return plain
	case b.trying || now.Before(b.until):
		return skip
	}
	b.trying = true
	return trial
}

// result is the result of a call.
type result int

const (
	succeeded result = iota
	failed
	canceled // the client went away, which tells nothing about the webhook
)

// end records a call that ended now and took the given time. It reports whether the webhook is skipped from now
// on, or is called again from now on.
func (b *budget) end(t turn, r result, now time.Time, took time.Duration) (skipped, resumed bool) {
	if b == nil {
		return false, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case t == trial:
		b.trying = false
		switch r {
		case succeeded:
			b.skipped, b.spent = false, 0
			return false, true
		case failed:
			b.until = now.Add(skipTime)
		}
	case r == failed && !b.skipped:
		if b.spent == 0 || now.Sub(b.since) > budgetWindow {
			b.since, b.spent = now, 0
		}
		if b.spent += took; b.spent > b.limit {
			b.skipped, b.until = true, now.Add(skipTime)
			return true, false
		}
	}
	return false, false
}
