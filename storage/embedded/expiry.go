package embedded

import (
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
}

// scheduled lowers the mark for a deadline below it (the clock was set back).
func (m *sweepMark) scheduled(deadline int64) {
	for {
		from := m.from.Load()
		if deadline >= from || m.from.CompareAndSwap(from, deadline) {
			return
		}
	}
}

// advance raises the mark from what it was when the sweep began.
func (m *sweepMark) advance(from, to int64) {
	if to > from {
		m.from.CompareAndSwap(from, to)
	}
}

// sweep removes the keys whose time to live has ended, by ordinary transactions,
// each on condition that the key was not written since.
func (s *Store) sweep() {
	for s.stopped.Err() == nil {
		n, err := s.sweepSome()
		if err != nil {
			if s.stopped.Err() == nil && s.pipeline.failure.Load() == nil {
				s.opts.Logger.Error("expired keys could not be removed", "error", err)
			}
			return
		}
		if n < sweepKeys {
			return
		}
	}
}

func (s *Store) sweepSome() (int, error) {
	now := s.opts.Clock().UnixMilli()
	from := s.expiry.from.Load()
	if from > now {
		return 0, nil
	}
	requests, err := s.expired(from, now)
	if err != nil {
		return 0, err
	}
	if len(requests) == 0 {
		s.expiry.advance(from, now)
		return 0, nil
	}
	if err := s.pipeline.submit(requests...); err != nil {
		return 0, err
	}
	for _, r := range requests {
		<-r.done
		if r.err == nil {
			continue
		}
		if _, conflict := r.err.(*storage.ConflictError); !conflict {
			err = r.err
		}
	}
	return len(requests), err
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
