package server

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// idlePause is the time between two looks of WaitForIdle.
const idlePause = time.Millisecond

// WaitForIdle waits until the server is idle, as keelson.Server.WaitForIdle defines it. If ctx ends first, the error
// wraps that of ctx and lists what is not finished.
func (s *Server) WaitForIdle(ctx context.Context) error {
	busy := []string{"the store has not told its revision"}
	for {
		now, err := s.busy(ctx)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("the server is not idle: %s: %w", strings.Join(busy, "; "), ctx.Err())
		case err != nil:
			return err
		case len(now) == 0:
			return nil
		}
		busy = now
		_ = sleep(ctx, idlePause) // busy checks ctx
	}
}

// busy returns descriptions of the work in progress. It checks the parts of the server one after the other. If
// meanwhile nothing was written, no request came and no part got work, all of them were idle at the same time.
func (s *Server) busy(ctx context.Context) (lines []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	begun, changes := s.http.begun.Load(), s.work.Activity.Changes()
	before, err := s.stores.revisions(ctx)
	if err != nil {
		return nil, err
	}
	if n := s.http.short.Load(); n > 0 {
		lines = append(lines, fmt.Sprintf("%d requests are served", n))
	}
	for i, p := range s.stores.places {
		if p.cache.Applied() < before[i] {
			lines = append(lines, "the cache does not have the latest writes")
		}
		for _, resource := range p.cache.Busy() {
			lines = append(lines, "changes of "+resource+" are being delivered")
		}
	}
	lines = append(lines, s.work.Activity.Busy()...)
	after, err := s.stores.revisions(ctx)
	if err != nil || len(lines) > 0 {
		return lines, err
	}
	for i := range after {
		if after[i] != before[i] {
			return []string{"objects are written"}, nil
		}
	}
	if s.http.begun.Load() != begun || s.work.Activity.Changes() != changes {
		return []string{"work begins again and again"}, nil
	}
	return nil, nil
}

// revisions returns the revision of each part of the stores.
func (s *stores) revisions(ctx context.Context) ([]int64, error) {
	out := make([]int64, len(s.places))
	for i, p := range s.places {
		var err error
		if out[i], err = p.cache.Current(ctx); err != nil {
			return nil, err
		}
	}
	return out, nil
}
