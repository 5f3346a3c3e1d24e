package etcd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// slowRequest is the duration of a commit after which the members are checked.
	slowRequest = 2 * time.Second
	// memberCheckInterval is the time between two checks of the members while some do not answer, and memberCheckTimeout
	// limits the answer of each.
	memberCheckInterval, memberCheckTimeout = time.Second, time.Second
)

// startMemberCheck is called when a request takes longer than expected. It starts checkMembers in the background,
// unless it is running already.
func (s *Store) startMemberCheck() {
	if len(s.opts.Endpoints) == 1 || !s.checkingMembers.CompareAndSwap(false, true) {
		return
	}
	s.mu.Lock() // prevents that a task is started after Close
	defer s.mu.Unlock()
	if s.lifetime.ctx.Err() == nil {
		s.lifetime.tasks.Go(s.checkMembers)
	}
}

// checkMembers makes the client send requests only to members that answer and have a leader, until all members do.
// Otherwise the client would continue to use a connection to a member that is suspended or cannot be reached,
// until keepAliveInterval and keepAliveTimeout have passed.
func (s *Store) checkMembers() {
	defer s.checkingMembers.Store(false)
	inUse := s.opts.Endpoints
	for {
		good := s.answeringMembers()
		if s.lifetime.ctx.Err() != nil {
			return
		}
		if len(good) == 0 {
			good = s.opts.Endpoints // all are equally bad
		}
		if !slices.Equal(good, inUse) {
			s.opts.Logger.Warn("etcd: members that do not answer are left out", "used", good, "all", s.opts.Endpoints)
			inUse = good
			s.client.SetEndpoints(good...)
		}
		if len(good) == len(s.opts.Endpoints) {
			return
		}
		select {
		case <-s.lifetime.ctx.Done():
			return
		case <-time.After(memberCheckInterval):
		}
	}
}

// answeringMembers returns the endpoints of members that answer and have a leader.
func (s *Store) answeringMembers() []string {
	ctx, cancel := context.WithTimeout(s.lifetime.ctx, memberCheckTimeout)
	defer cancel()
	ok := make([]bool, len(s.opts.Endpoints))
	var wg sync.WaitGroup
	for i, endpoint := range s.opts.Endpoints {
		wg.Go(func() {
			r, err := s.client.Status(ctx, endpoint)
			ok[i] = err == nil && r.Leader != 0
		})
	}
	wg.Wait()
	var good []string
	for i, endpoint := range s.opts.Endpoints {
		if ok[i] {
			good = append(good, endpoint)
		}
	}
	return good
}

// pollMembers runs updateMembers at each PollInterval until Close.
func (s *Store) pollMembers() {
	if s.opts.PollInterval < 0 {
		return
	}
	ticker := time.NewTicker(s.opts.PollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.lifetime.ctx.Done():
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(s.lifetime.ctx, s.opts.PollInterval)
		s.updateMembers(ctx)
		cancel()
	}
}

// updateMembers requests the database size and the version of each member. Members that do not respond are omitted.
func (s *Store) updateMembers(ctx context.Context) {
	var size atomic.Int64
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var old atomic.Pointer[error]
	for _, endpoint := range s.opts.Endpoints {
		wg.Go(func() {
			r, err := s.client.Status(ctx, endpoint)
			if err != nil {
				return // the member does not answer
			}
			raiseTo(&size, r.DbSize)
			if !reportsProgress(r.Version) {
				err := fmt.Errorf(
					"etcd: %s has version %s, which announces progress of watches too early; use 3.5.8 or later (3.4.25 of 3.4)",
					endpoint, r.Version,
				)
				old.Store(&err)
			}
		})
	}
	wg.Wait()
	if n := size.Load(); n > 0 {
		s.observed.size.Store(n)
	}
	if p := old.Load(); p != nil && s.unusable.version.Swap(p) == nil {
		s.opts.Logger.Error("etcd cannot be used", "error", *p)
	} else if p == nil {
		s.unusable.version.Store(nil)
	}
}

// reportsProgress reports whether a version of etcd answers progress requests only after the changes up to the
// announced revision (https://github.com/etcd-io/etcd/issues/15220). A version that is not a release number is treated
// as a build of a later release.
func reportsProgress(version string) bool {
	release, _, _ := strings.Cut(version, "-")
	parts := strings.Split(release, ".")
	if len(parts) != 3 {
		return true
	}
	var n [3]int
	for i, p := range parts {
		var err error
		if n[i], err = strconv.Atoi(p); err != nil {
			return true
		}
	}
	switch {
	case n[0] != 3:
		return n[0] > 3
	case n[1] == 5:
		return n[2] >= 8
	case n[1] == 4:
		return n[2] >= 25
	}
	return n[1] > 5
}
