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
	// suspicion is for how long a commit may be under way before somebody looks
	// whether its member answers at all.
	suspicion = 2 * time.Second
	// lookEvery is how often members are asked while some do not answer, and lookWait
	// how long each may take.
	lookEvery, lookWait = time.Second, time.Second
)

// suspect is called when a request takes longer than expected. It does not block.
func (s *Store) suspect() {
	if len(s.opts.Endpoints) == 1 || !s.looking.CompareAndSwap(false, true) {
		return
	}
	s.mu.Lock() // no task begins after Close
	defer s.mu.Unlock()
	if s.ctx.Err() == nil {
		s.tasks.Go(s.look)
	}
}

// look sends requests only to members that answer and have a leader, until all do: a
// connection to one that is paused or cut off looks like any other for keepAliveEvery
// and keepAliveWait.
func (s *Store) look() {
	defer s.looking.Store(false)
	inUse := s.opts.Endpoints
	for {
		good := s.answering()
		if s.ctx.Err() != nil {
			return
		}
		if len(good) == 0 {
			good = s.opts.Endpoints // none is better than another
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
		case <-s.ctx.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}

// answering returns the endpoints of members that answer and have a leader.
func (s *Store) answering() []string {
	ctx, cancel := context.WithTimeout(s.ctx, lookWait)
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

// poll updates the status of the members regularly.
func (s *Store) poll() {
	if s.opts.PollInterval < 0 {
		return
	}
	ticker := time.NewTicker(s.opts.PollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(s.ctx, s.opts.PollInterval)
		s.members(ctx)
		cancel()
	}
}

// members asks each member that answers for its size and its version.
func (s *Store) members(ctx context.Context) {
	var size atomic.Int64
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var old atomic.Pointer[error]
	for _, endpoint := range s.opts.Endpoints {
		wg.Go(func() {
			r, err := s.client.Status(ctx, endpoint)
			if err != nil {
				return // one that is down is not asked
			}
			raise(&size, r.DbSize)
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
		s.size.Store(n)
	}
	if p := old.Load(); p != nil && s.unfit.Swap(p) == nil {
		s.opts.Logger.Error("etcd cannot be used", "error", *p)
	} else if p == nil {
		s.unfit.Store(nil)
	}
}

// reportsProgress says whether a release answers progress requests after the
// changes that they speak of (https://github.com/etcd-io/etcd/issues/15220). What
// is no release number is taken for a build of a later one.
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
