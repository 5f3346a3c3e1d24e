package embedded

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// reclaimer frees the disk space of compacted history. A deleted version stays in Pebble's tables until they are
// merged, and Pebble chooses merges by the contents of its tables: a deletion that is still in a memtable, because
// little is written, does not count. So the reclaimer flushes the memtables and then merges those spans of keys that
// are mostly garbage.
//
// The work is proportional to the garbage: a span is merged only if its size is at most reclaimMaxRatio times its
// garbage (reclaimMaxRatioLow times while space is low), and after the merge its garbage is no longer counted. So
// for each byte of garbage at most reclaimMaxRatio bytes are read and written, however large the database is. In
// addition, the properties of all tables are read first.
type reclaimer struct {
	db      *database
	merges  *mergeScheduler
	measure func() // called after merges: they change the size of the store

	mu      sync.Mutex // guards garbage
	garbage garbage

	wake chan struct{} // capacity 1; receives when there may be enough garbage

	// timedOut is set when the last merge ended after reclaimMergeTimeout. Only the reclaimer goroutine uses it.
	timedOut bool
}

const (
	// reclaimMinBytes is the smallest amount of garbage for which the reclaimer searches for spans to merge. While
	// space is low, it is reclaimMinBytesLow.
	reclaimMinBytes    = 16 << 20
	reclaimMinBytesLow = 1 << 20

	reclaimMaxRatio    = 3
	reclaimMaxRatioLow = 16

	// reclaimStepBytes is the largest size of neighbouring spans that are merged together. (A larger span is
	// merged by itself.) The result of a merge must fit into the free space, and Close waits for the merge.
	reclaimStepBytes = 32 << 20

	// reclaimMergeCost is added to the size of each merge, because tables that extend beyond the span are rewritten too.
	reclaimMergeCost = 4 << 20
)

// add records garbage.
func (r *reclaimer) add(deleted *garbage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.garbage.addAll(deleted)
}

// pending returns the recorded number of bytes of garbage.
func (r *reclaimer) pending() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.garbage.total
}

// wakeIfNeeded wakes the reclaimer if there is enough garbage. low is true while space is low.
func (r *reclaimer) wakeIfNeeded(low bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.garbage.total < reclaimMinBytes && (!low || r.garbage.total < reclaimMinBytesLow) {
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take returns the garbage and resets it.
func (r *reclaimer) take() garbage {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.garbage
	r.garbage = garbage{}
	return g
}

// The reclaimer pauses for reclaimPause after it has merged something. Otherwise it pauses for twice as long as before,
// up to reclaimMaxPause, so that a merge that fails or does not pay yet is not tried again immediately.
const (
	reclaimPause    = time.Second
	reclaimMaxPause = 10 * time.Second
)

// run calls once whenever there may be enough garbage, until ctx ends. once merges the spans that are worthwhile.
// After an error run calls once again without a new request, because there would be no request if nothing more is
// written.
func (r *reclaimer) run(ctx context.Context, once func(context.Context) (merged bool, err error)) {
	for rest := reclaimPause; ; {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		merged, err := once(ctx)
		r.timedOut = errors.Is(err, context.DeadlineExceeded)
		if rest = min(2*rest, reclaimMaxPause); merged || r.timedOut {
			rest = reclaimPause
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
		if err != nil {
			r.wakeIfNeeded(r.db.space.isLow())
		}
	}
}

// once merges the spans that are worthwhile and reports whether there was one. The garbage of the other spans, and
// of those whose merge failed, is recorded again. It logs the error that it returns, unless ctx has ended or the
// merge has waited too long.
func (r *reclaimer) once(ctx context.Context) (merged bool, err error) {
	defer func() {
		if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			r.db.opts.Logger.Error("the space of compacted history could not be freed", "error", err)
		}
	}()
	r.merges.retryNow()
	if r.timedOut {
		r.coverGarbage()
	}
	// All garbage in g must be in tables when it is measured there. Garbage that is added meanwhile is handled by
	// the next call.
	g := r.take()
	left, err := int64(0), r.db.flushMemTables(ctx)
	if err == nil {
		left, err = r.garbageInTables()
	}
	if err != nil {
		r.add(&g)
		return false, err
	}
	g.scaleDown(left)
	low := r.db.space.isLow()
	steps, rest, err := r.plan(&g, low)
	for i, step := range steps {
		if err == nil {
			err = r.mergeSpan(ctx, step)
		}
		if err != nil { // the remaining spans are tried again next time
			for _, left := range steps[i:] {
				rest.add(left.first, left.last, left.bytes)
			}
			break
		}
		merged = true
	}
	r.add(&rest)
	r.measure()
	return merged, err
}

// coverGarbage deletes versions that do not exist, at both ends of each span of garbage. Pebble runs merges of its
// own choice before the requested ones. It may choose tables of values without the newer tables that delete these
// values. If there is no space for the result, it chooses the same tables again. A new table of deletions that
// covers the span makes Pebble choose all tables below it.
func (r *reclaimer) coverGarbage() {
	if !r.db.mayWrite() {
		return
	}
	b := r.db.NewBatch()
	defer b.Close()
	r.mu.Lock()
	for _, span := range r.garbage.spans {
		mustSucceed(b.Delete(versionBound(span.first, false), nil))
		mustSucceed(b.Delete(versionBound(span.last, true), nil))
	}
	r.mu.Unlock()
	_ = r.db.applyUnsynced(b) // a failure stops the store and is logged there
}

// reclaimMergeTimeout limits how long a merge may wait for other merges and for space. After that, the merge is
// tried again later.
const reclaimMergeTimeout = 5 * time.Second

// mergeSpan merges the tables that contain versions of the keys of a span.
func (r *reclaimer) mergeSpan(ctx context.Context, span garbageSpan) error {
	ctx, cancel := context.WithTimeout(ctx, reclaimMergeTimeout)
	defer cancel()
	return r.db.Compact(ctx, versionBound(span.first, false), versionBound(span.last, true), false)
}

// garbageInTables returns how many bytes of garbage are in the tables. This may be less than the recorded garbage,
// because Pebble also merges by itself. A table knows the total size of the versions that its deletions delete; a
// deletion that a merge has applied to its version no longer counts. Deletions without a size, which exist in old
// databases, are not counted. Versions are compressed in the tables, so their size is multiplied by the
// compression ratio of all tables.
func (r *reclaimer) garbageInTables() (int64, error) {
	deleted, raw, compressed, err := r.db.tableBytes(0)
	if err != nil {
		return 0, err
	}
	if compressed >= raw {
		return int64(deleted), nil
	}
	return int64(deleted * compressed / raw), nil
}

// plan returns the spans that are worth merging in steps, ordered by their live bytes, the fewest first. It
// returns the other spans in rest. low is true while space is low.
func (r *reclaimer) plan(g *garbage, low bool) (steps []garbageSpan, rest garbage, err error) {
	ratio := int64(reclaimMaxRatio)
	if low {
		ratio = reclaimMaxRatioLow
	}
	var sizes []int64 // of the steps
	for i, span := range g.spans {
		size, gap, err := r.sizeOfSpan(span, steps)
		if err != nil {
			for _, left := range g.spans[i:] {
				rest.add(left.first, left.last, left.bytes)
			}
			return steps, rest, err
		}
		if span.bytes*ratio < size {
			rest.add(span.first, span.last, span.bytes)
			continue
		}
		// The span is joined with the last step if the result is not too large, and if each of the two is worth
		// merging even together with the live versions between them.
		n := len(steps) - 1
		if n >= 0 && sizes[n]+gap+size <= reclaimStepBytes &&
			steps[n].bytes*ratio >= sizes[n]+gap && span.bytes*ratio >= gap+size {
			sizes[n] += gap + size
			steps[n].last, steps[n].bytes = span.last, steps[n].bytes+span.bytes
			continue
		}
		steps, sizes = append(steps, span), append(sizes, size)
	}
	live := map[string]int64{} // by the first key of a step
	for i, step := range steps {
		live[step.first] = sizes[i] - step.bytes
	}
	steps = slices.DeleteFunc(steps, func(step garbageSpan) bool {
		small := step.bytes*ratio < live[step.first]+step.bytes+reclaimMergeCost
		if small {
			rest.add(step.first, step.last, step.bytes)
		}
		return small
	})
	slices.SortStableFunc(steps, func(a, b garbageSpan) int { return cmp.Compare(live[a.first], live[b.first]) })
	return steps, rest, nil
}

// sizeOfSpan returns the size of a span on disk, and of everything between the last step and the span.
func (r *reclaimer) sizeOfSpan(span garbageSpan, steps []garbageSpan) (size, gap int64, err error) {
	first, last := versionBound(span.first, false), versionBound(span.last, true)
	own, err := r.db.EstimateDiskUsage(first, last)
	if err != nil || len(steps) == 0 {
		return int64(own), 0, err
	}
	between, err := r.db.EstimateDiskUsage(versionBound(steps[len(steps)-1].last, true), first)
	return int64(own), int64(between), err
}

// versionBound returns the lowest version key of key or, if last is true, the highest one.
func versionBound(key string, last bool) []byte {
	if last {
		return appendVersionKey(nil, key, 0)
	}
	return appendVersionKey(nil, key, maxRevision)
}
