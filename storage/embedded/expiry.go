package embedded

import (
	"errors"
	"math"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/storage"
)

// sweepKeys bounds the keys that one round of the sweeper removes.
const sweepKeys = 1024

// sweepMark is the deadline below which the expiry index is known to be empty,
// so that a sweep does not walk over what earlier ones removed.
type sweepMark struct {
	from atomic.Int64
	// upTo is the deadline that the sweep under way, or the last one, goes to; late
	// says that one up to it was scheduled since it began.
	upTo atomic.Int64
	late atomic.Bool
}

// begin returns where a sweep up to now has to begin.
func (m *sweepMark) begin(now int64) (from int64) {
	m.late.Store(false)
	m.upTo.Store(now)
	return m.from.Load()
}

// scheduled lowers the mark for a deadline below it (the clock was set back), and
// keeps a sweep under way from raising it above.
func (m *sweepMark) scheduled(deadline int64) {
	if deadline <= m.upTo.Load() {
		m.late.Store(true)
	}
	for {
		from := m.from.Load()
		if deadline >= from || m.from.CompareAndSwap(from, deadline) {
			return
		}
	}
}

// advance raises the mark from what it was when the sweep began to where it went,
// unless something was scheduled before that meanwhile.
func (m *sweepMark) advance(from int64) {
	if to := m.upTo.Load(); to > from && !m.late.Load() {
		m.from.CompareAndSwap(from, to)
	}
}

// sweep removes the keys whose time to live has ended, by ordinary transactions,
// each on condition that the key was not written since.
func (s *Store) sweep() {
	now := s.clock.now()
	from := s.expiry.begin(now)
	for removed := 0; s.stopped.Err() == nil; {
		found, gone, err := s.sweepSome(from, now)
		switch {
		case err != nil:
			if s.stopped.Err() == nil && s.pipeline.failure.Load() == nil {
				s.opts.Logger.Error("expired keys could not be removed", "error", err)
			}
			return
		case found == 0 && removed > 0:
			// The removals went through the pipeline after all transactions that
			// were planned before the sweep began, and none of those has left a
			// key: later ones tell scheduled. A transaction may be held up between
			// its deadline and its write for as long as a process can be asleep.
			s.expiry.advance(from)
			return
		case gone == 0:
			return // nothing is due, or all of it was written again
		}
		removed += gone
	}
}

// sweepSome removes some of what expired from deadline from to deadline to, both
// inclusive. It returns how many keys it found and how many of them it removed.
func (s *Store) sweepSome(from, to int64) (found, gone int, err error) {
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

// expired returns the transactions that remove what expired from deadline from to
// deadline to, both inclusive, at most sweepKeys of them.
func (s *Store) expired(from, to int64) ([]*request, error) {
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
