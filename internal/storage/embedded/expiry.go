package embedded

import (
	"context"
	"errors"
	"math"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/internal/storage"
)

// sweepKeys is the largest number of keys that one batch of a sweep removes.
const sweepKeys = 1024

// sweepStart remembers a deadline below which the expiry index is known to be empty. A sweep starts there, so that
// it need not pass over the deleted records of earlier sweeps.
//
// Example: a sweep at time 100 finds nothing more to remove, so the next sweep starts at 100. If a transaction
// with the deadline 90 is planned during the sweep (because it was delayed, or the clock was set back), the next
// sweep starts at 90 or earlier.
type sweepStart struct {
	from atomic.Int64
	// upTo is the last deadline of the current sweep or, between sweeps, of the previous one. scheduledMeanwhile
	// is set if a deadline at or below upTo is scheduled after that sweep has begun.
	upTo               atomic.Int64
	scheduledMeanwhile atomic.Bool
}

// begin starts a sweep of the deadlines up to now, and returns the first deadline of the sweep.
func (s *sweepStart) begin(now int64) (from int64) {
	s.scheduledMeanwhile.Store(false)
	s.upTo.Store(now)
	return s.from.Load()
}

// scheduled must be called before a deadline is written. If the deadline is below the start, it lowers the start
// to the deadline. It also prevents the current sweep from raising the start above the deadline.
func (s *sweepStart) scheduled(deadline int64) {
	if deadline <= s.upTo.Load() {
		s.scheduledMeanwhile.Store(true)
	}
	for {
		from := s.from.Load()
		if deadline >= from || s.from.CompareAndSwap(from, deadline) {
			return
		}
	}
}

// advance raises the start to the end of the sweep. from is the start when the sweep began. It does nothing if a
// deadline up to that end was scheduled since the sweep began.
func (s *sweepStart) advance(from int64) {
	if to := s.upTo.Load(); to > from && !s.scheduledMeanwhile.Load() {
		s.from.CompareAndSwap(from, to)
	}
}

// sweeper removes keys whose time to live has ended. The planner calls start.scheduled; everything else is done by the
// maintenance goroutine.
type sweeper struct {
	db       *database
	clock    *storeClock
	pipeline *pipeline
	start    sweepStart
}

// sweep removes the keys whose time to live has ended. It uses ordinary transactions, each with the condition that the
// key was not written since.
func (s *sweeper) sweep(ctx context.Context) {
	now := s.clock.now()
	from := s.start.begin(now)
	for removed := 0; ctx.Err() == nil; {
		found, gone, err := s.batch(from, now)
		switch {
		case err != nil:
			if ctx.Err() == nil && s.pipeline.failure.Load() == nil {
				s.db.opts.Logger.Error("expired keys could not be removed", "error", err)
			}
			return
		case found == 0 && removed > 0:
			// The removals were committed after all transactions that were planned before the sweep began, and the index has no
			// due key of those transactions. Transactions that are planned later call scheduled. The start is raised only after
			// a removal, because any time can pass between the call of scheduled and the write of a transaction, for example
			// while the process is suspended.
			s.start.advance(from)
			return
		case gone == 0:
			return // nothing is due, or all due keys were written again
		}
		removed += gone
	}
}

// batch removes at most sweepKeys keys whose deadline is in [from, to]. It returns how many keys it found and how
// many of them it removed.
func (s *sweeper) batch(from, to int64) (found, gone int, err error) {
	if from > to {
		return 0, 0, nil
	}
	requests, err := s.expired(from, to)
	if err != nil || len(requests) == 0 {
		return 0, 0, err
	}
	if err := s.pipeline.submit(requests...); err != nil {
		return 0, 0, err
	}
	for _, r := range requests {
		<-r.done
		var conflict *storage.ConflictError
		switch {
		case r.err == nil:
			gone++
		case !errors.As(r.err, &conflict):
			err = r.err
		}
	}
	return len(requests), gone, err
}

// expired returns at most sweepKeys transactions, each of which removes one key whose deadline is in [from, to].
func (s *sweeper) expired(from, to int64) ([]*request, error) {
	o := &pebble.IterOptions{
		LowerBound: appendExpiryKey(nil, from, ""),
		UpperBound: appendExpiryKey(nil, min(to, math.MaxInt64-1)+1, ""),
	}
	it, err := s.db.NewIter(o)
	if err != nil {
		return nil, err
	}
	defer it.Close()
	var requests []*request
	for ok := it.First(); ok && len(requests) < sweepKeys; ok = it.Next() {
		_, key, err := parseExpiryKey(it.Key())
		if err != nil {
			return nil, err
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, err
		}
		revision, err := decodeNumber(value)
		if err != nil {
			return nil, err
		}
		requests = append(requests, newRequest(storage.Txn{
			Conditions: []storage.Condition{{Key: string(key), ModRevision: revision}},
			Ops:        []storage.Op{storage.Delete(string(key))},
		}))
	}
	return requests, it.Error()
}
