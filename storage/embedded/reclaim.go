package embedded

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// reclaimer gives disk space back that compaction of history has set free. What is
// deleted in the database stays in its tables until they are merged, and the database
// decides by what is in its tables: deletions that wait in memory, because little is
// written, count for nothing. So the reclaimer has them written, and merges those spans
// of keys where much of what lies there is garbage.
//
// The work is in proportion to the garbage: a span is merged only if its garbage is
// 1/reclaimRatio of all that lies there (1/reclaimRatioLow while space is low), and its
// garbage is forgotten then. So each byte of garbage pays for reclaimRatio bytes read
// and written at most, however large the database is.
type reclaimer struct {
	mu      sync.Mutex // guards garbage
	garbage garbage

	wake chan struct{} // capacity 1

	// stuck says that the last merge waited in vain for others. Only the reclaimer's goroutine uses it.
	stuck bool
}

const (
	// reclaimBytes of garbage make it worth to look for what can be merged.
	reclaimBytes    = 16 << 20
	reclaimBytesLow = 1 << 20 // while space is low

	reclaimRatio    = 3
	reclaimRatioLow = 16

	// reclaimStep is the most that one merge reads of neighbouring spans, unless one span
	// is larger: what it writes has to fit the space that is left, and Close waits for it.
	reclaimStep = 32 << 20

	// reclaimBorder is charged for each merge: tables that reach beyond the span are
	// rewritten too.
	reclaimBorder = 4 << 20
)

// add notes what was deleted.
func (r *reclaimer) add(deleted *garbage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.garbage.merge(deleted)
}

// look wakes the reclaimer if there is enough for it to do.
func (r *reclaimer) look(low bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.garbage.total < reclaimBytes && (!low || r.garbage.total < reclaimBytesLow) {
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take returns the garbage, and forgets it.
func (r *reclaimer) take() garbage {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.garbage
	r.garbage = garbage{}
	return g
}

// The reclaimer rests for reclaimRest after it has merged something, and for twice as long
// as before, up to reclaimLongRest, after it has not: neither what fails nor what is not
// worth it yet is tried again at once.
const (
	reclaimRest     = time.Second
	reclaimLongRest = 10 * time.Second
)

// reclaim is the reclaimer's goroutine.
func (s *Store) reclaim() {
	for rest := reclaimRest; ; {
		select {
		case <-s.stopped.Done():
			return
		case <-s.reclaimer.wake:
		}
		merged, err := s.reclaimOnce(s.stopped)
		s.reclaimer.stuck = errors.Is(err, context.DeadlineExceeded)
		if rest = min(2*rest, reclaimLongRest); merged || s.reclaimer.stuck {
			rest = reclaimRest
		}
		if err != nil && s.stopped.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			s.opts.Logger.Error("the space of compacted history could not be freed", "error", err)
		}
		select {
		case <-s.stopped.Done():
		case <-time.After(rest):
		}
	}
}

// reclaimOnce merges what is worth it, and returns whether anything was. What is not, or
// cannot be merged now, is kept.
func (s *Store) reclaimOnce(ctx context.Context) (merged bool, err error) {
	s.gate.hurry()
	if s.reclaimer.stuck {
		s.coverGarbage()
	}
	if err := s.flush(ctx); err != nil {
		return false, err
	}
	g := s.reclaimer.take()
	g.shrink(s.unmerged(ctx))
	low := s.space.level.Load() != spaceEnough
	steps, rest, err := s.reclaimSteps(&g, low)
	for i, step := range steps {
		if err == nil {
			err = s.merge(ctx, step)
		}
		if err != nil { // the rest is for the next time
			for _, left := range steps[i:] {
				rest.add(left.first, left.last, left.bytes)
			}
			break
		}
		merged = true
	}
	s.reclaimer.add(&rest)
	s.measure()
	return merged, err
}

// coverGarbage deletes versions that do not exist, at both ends of each span of garbage. The database merges by
// itself before it merges what the reclaimer asks for, and may choose tables of values without the newer ones of
// their deletions. If there is no space for the result, it chooses the same again. A table of deletions that
// covers the span makes it choose everything that lies below it.
func (s *Store) coverGarbage() {
	if s.pipeline.failure.Load() != nil || s.space.level.Load() == spaceCritical {
		return
	}
	b := s.db.NewBatch()
	defer b.Close()
	s.reclaimer.mu.Lock()
	for _, span := range s.reclaimer.garbage.spans {
		must(b.Delete(versionBound(span.first, false), nil))
		must(b.Delete(versionBound(span.last, true), nil))
	}
	s.reclaimer.mu.Unlock()
	_ = s.write(b) // a failure stops the store, which says so
}

// reclaimPatience is how long a merge may wait for others, and for space. It is asked for again after that.
const reclaimPatience = 5 * time.Second

// merge merges the tables that have versions of the keys of a span.
func (s *Store) merge(ctx context.Context, span garbageSpan) error {
	ctx, cancel := context.WithTimeout(ctx, reclaimPatience)
	defer cancel()
	return s.db.Compact(ctx, versionBound(span.first, false), versionBound(span.last, true), false)
}

// flush writes to tables what is in memory.
func (s *Store) flush(ctx context.Context) error {
	flushed, err := guardPanic(s.db.AsyncFlush)
	if err != nil {
		return err
	}
	select {
	case <-flushed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unmerged returns how many bytes of garbage the database knows of in its tables. It
// merges by itself, too, so that this may be less than what was deleted. It looks at new
// tables in the background; that it has is waited for, but not for long.
func (s *Store) unmerged(ctx context.Context) int64 {
	for range 50 {
		m := s.db.Metrics()
		if m.Table.PendingStatsCollectionCount == 0 && m.Table.InitialStatsCollectionComplete {
			return int64(m.Table.Garbage.PointDeletionsBytesEstimate)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return 0
		}
	}
	return 1<<63 - 1
}

// reclaimSteps returns the spans that are worth to be merged, the most worthwhile first,
// and the others.
func (s *Store) reclaimSteps(g *garbage, low bool) (steps []garbageSpan, rest garbage, err error) {
	ratio := int64(reclaimRatio)
	if low {
		ratio = reclaimRatioLow
	}
	sizes := map[string]int64{} // by first
	joined := int64(0)          // the size of what the last step was made of
	for i, span := range g.spans {
		size, err := s.db.EstimateDiskUsage(versionBound(span.first, false), versionBound(span.last, true))
		if err != nil {
			for _, left := range g.spans[i:] {
				rest.add(left.first, left.last, left.bytes)
			}
			return steps, rest, err
		}
		if span.bytes*ratio < int64(size) {
			rest.add(span.first, span.last, span.bytes)
			joined = reclaimStep // what follows is no neighbour
			continue
		}
		if n := len(steps) - 1; n >= 0 && joined+int64(size) <= reclaimStep {
			joined += int64(size)
			steps[n].last, steps[n].bytes = span.last, steps[n].bytes+span.bytes
			sizes[steps[n].first] = joined
			continue
		}
		joined = int64(size)
		sizes[span.first] = joined
		steps = append(steps, span)
	}
	steps = slices.DeleteFunc(steps, func(step garbageSpan) bool {
		small := step.bytes*ratio < sizes[step.first]+reclaimBorder
		if small {
			rest.add(step.first, step.last, step.bytes)
		}
		return small
	})
	slices.SortStableFunc(steps, func(a, b garbageSpan) int {
		left := func(s garbageSpan) int64 { return sizes[s.first] - s.bytes }
		return int(max(min(left(a)-left(b), 1), -1))
	})
	return steps, rest, nil
}

// versionBound returns the first or the last key that a version of key can have.
func versionBound(key string, last bool) []byte {
	if last {
		return appendVersionKey(nil, key, 0)
	}
	return appendVersionKey(nil, key, maxRevision)
}
