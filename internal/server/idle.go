package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/server/background"
)

// idlePause is the time between two looks of WaitForIdle.
const idlePause = time.Millisecond

// WaitForIdle waits until the server is idle, as keelson.Server.WaitForIdle defines it, and then until it has been idle
// without a break for the time quiet. If ctx ends first, the error wraps that of ctx and lists what is not finished.
func (s *Server) WaitForIdle(ctx context.Context, quiet time.Duration) error {
	busy := []string{"the store has not told its revision"}
	var idle idleness
	for {
		now, state, err := s.busy(ctx)
		switch {
		case ctx.Err() != nil:
			if len(busy) == 0 {
				busy = s.notQuiet(quiet)
			}
			return fmt.Errorf("the server is not idle: %s: %w", strings.Join(busy, "; "), ctx.Err())
		case err != nil:
			return err
		case idle.lasts(len(now) == 0, state, time.Now()) >= quiet:
			return nil
		}
		busy = now
		_ = background.Sleep(ctx, idlePause) // busy checks ctx
	}
}

// idleness measures how long a server has been idle.
type idleness struct {
	state []int64 // at the last check; nil if the server was busy
	since time.Time
}

// lasts returns how long the server has been idle without a break. The result is negative if idle is false. state
// grows with each request and each change of an object. If it differs from the last call, there was a break.
func (i *idleness) lasts(idle bool, state []int64, now time.Time) time.Duration {
	if !idle {
		i.state = nil
		return -1
	}
	if !slices.Equal(i.state, state) {
		i.state, i.since = state, now
	}
	return now.Sub(i.since)
}

// busy returns descriptions of the work in progress. It checks the parts of the server one after the other. If
// nothing was written, no request came and no part got work during that, all parts were idle at the same time.
// state has the revisions of the stores and the number of requests so far.
func (s *Server) busy(ctx context.Context) (lines []string, state []int64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	changes := s.work.Activity.Changes()
	before, err := s.idleState(ctx)
	if err != nil {
		return nil, nil, err
	}
	if n := s.http.short.Load(); n > 0 {
		lines = append(lines, fmt.Sprintf("%d requests are served%s", n, s.running()))
	}
	for i, p := range s.stores.Parts {
		if p.Cache.Applied() < before[i] {
			lines = append(lines, "the cache does not have the latest writes")
		}
		for _, resource := range p.Cache.Busy() {
			lines = append(lines, "changes of "+resource+" are being delivered")
		}
	}
	lines = append(lines, s.work.Activity.Busy()...)
	after, err := s.idleState(ctx)
	if err == nil && len(lines) == 0 && (!slices.Equal(after, before) || s.work.Activity.Changes() != changes) {
		lines = []string{"requests, writes or other work begin again and again"}
	}
	return lines, after, err
}

// running returns a text with requests that are being served, "" if the server does not record them.
func (s *Server) running() string {
	const most = 5
	if s.Traffic() == nil {
		return ""
	}
	lines := s.Traffic().Running(most)
	if len(lines) == 0 {
		return ""
	}
	return " (" + strings.Join(lines, ", ") + ")"
}

// notQuiet returns the latest work of an idle server, which ended less than quiet ago. This is the last request,
// if the server records requests, and the object that changed last in each part of the stores.
func (s *Server) notQuiet(quiet time.Duration) []string {
	lines := []string{fmt.Sprintf("the last request, or the last change of an object, was less than %v ago", quiet)}
	if t := s.Traffic(); t != nil && t.Last() != "" {
		lines = append(lines, "the last request was "+t.Last())
	}
	for _, p := range s.stores.Parts {
		if object := p.Cache.LastChanged(); object != "" {
			lines = append(lines, "the last change was that of "+object)
		}
	}
	return lines
}

// idleState returns the revision of each part of the stores, and the number of requests so far.
func (s *Server) idleState(ctx context.Context) ([]int64, error) {
	requests := s.http.begun.Load()
	revisions, err := s.stores.Revisions(ctx)
	return append(revisions, requests), err
}
