package webhooks

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

// TestHealth checks which results of calls say that a webhook fails, and since when.
func TestHealth(t *testing.T) {
	begin := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	fails := &callError{webhook: "w", reason: errors.New("no answer")}
	h := &health{}
	for minute, step := range []struct {
		ctx   context.Context
		err   error
		since int // the minute since which it fails, -1 if it does not
		text  string
	}{
		{t.Context(), nil, -1, ""},
		{ended, fails, -1, ""},
		{t.Context(), kerrors.NewBadRequest("a dry run"), -1, ""},
		{t.Context(), fails, 3, "no answer"},
		{ended, fails, 3, "no answer"},
		{t.Context(), kerrors.NewInternalError(errors.New("the patch")), 3, "the patch"},
		{t.Context(), &refusalError{}, -1, ""},
		{t.Context(), &callError{reason: errors.New(strings.Repeat("a", 2*maxFailureText))}, 7, "aaa"},
		{t.Context(), nil, -1, ""},
	} {
		h.note(step.ctx, begin.Add(time.Duration(minute)*time.Minute), step.err)
		f := h.failing.Load()
		switch {
		case (f == nil) != (step.since < 0):
			t.Errorf("after minute %d: %+v", minute, f)
		case f != nil && (!f.since.Equal(begin.Add(time.Duration(step.since)*time.Minute)) || !strings.Contains(f.text, step.text) ||
			len(f.text) > maxFailureText+3):
			t.Errorf("after minute %d: since %v: %s", minute, f.since, f.text)
		}
	}
}

// TestKeepHealth checks that a change of the configuration keeps the health of a webhook, unless its target or
// timeout changes.
func TestKeepHealth(t *testing.T) {
	made := func(id, url string) *hook {
		return &hook{id: id, target: webhook.Target{URL: url, CABundle: []byte("ca")}, health: &health{}}
	}
	old := []*hook{made("c/a/0", "https://a"), made("c/b/0", "https://b")}
	next := []*hook{made("c/b/0", "https://b"), made("c/a/0", "https://other"), made("c/c/0", "https://c")}
	keepHealth(old, next)
	if next[0].health != old[1].health || next[1].health == old[0].health || next[2].health == nil {
		t.Error("the wrong state was kept")
	}
}
