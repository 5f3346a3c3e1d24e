package embedded

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
)

// hub contains the ring and the watchers. A watcher that waits in Next is parked: it is registered under its prefix and
// is not examined before a change matches that prefix. So an idle watcher adds no cost to a commit. The parked watchers
// of a change are found by looking up the beginning of its key, once for each length of prefix in use, not by examining
// all watchers.
//
// Example: watchers wait for the prefixes /pods/ and /nodes/a, which have the lengths 6 and 8. For a change of
// /pods/x only "/pods/" is looked up, because the key is shorter than 8. For a change of /nodes/ab, "/nodes" and
// "/nodes/a" are looked up.
type hub struct {
	// durable is the current revision of the store. It is written while mu is held.
	durable atomic.Int64
	written atomic.Int64 // storage.Stats.WrittenBytes

	mu      sync.Mutex // guards the fields below, and the marked fields of every watcher
	ring    *ring
	groups  map[string]*prefixGroup // by prefix; only prefixes with watchers
	lengths []int                   // the distinct lengths of those prefixes, ascending
	parked  int                     // number of parked watchers
	closed  bool

	progress progressState
}

// progressState is the state of progress notifications: empty batches that tell waiting watchers the current revision.
type progressState struct {
	revision int64       // revision that the last round sent
	at       time.Time   // time of the last round
	timer    *time.Timer // runs the next round; nil if none is due
}

// prefixGroup contains the watchers of one prefix.
type prefixGroup struct {
	watchers int
	parked   []*watcher
}

// newHub returns a hub at the given durable revision. ringBytes limits the memory of the ring.
func newHub(revision int64, ringBytes int) *hub {
	h := &hub{ring: newRing(ringBytes, revision+1), groups: make(map[string]*prefixGroup)}
	h.durable.Store(revision)
	return h
}

// publish makes durable records visible and wakes the watchers whose prefix matches. There is at least one record.
func (h *hub) publish(records []*record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	written := 0
	for _, rec := range records {
		for i := range rec.events {
			written += len(rec.events[i].Entry.Key) + len(rec.events[i].Entry.Value)
		}
		h.ring.append(rec)
		if h.parked > 0 {
			h.wakeMatching(rec)
		}
	}
	h.written.Add(int64(written))
	h.durable.Store(records[len(records)-1].revision)
}

// wakeMatching wakes the parked watchers whose prefix matches a key of rec. The caller holds mu.
func (h *hub) wakeMatching(rec *record) {
	for i := range rec.events {
		key := rec.events[i].Entry.Key
		for _, n := range h.lengths {
			if n > len(key) {
				break
			}
			g := h.groups[key[:n]]
			if g == nil || len(g.parked) == 0 {
				continue
			}
			rest := g.parked[:0]
			for _, w := range g.parked {
				if w.cursor > rec.revision {
					rest = append(rest, w) // it waits for a later revision
					continue
				}
				w.cursor = rec.revision // no earlier change matched
				w.signal()
				h.parked--
			}
			clear(g.parked[len(rest):])
			g.parked = rest
		}
	}
}

// sendProgress sends the current revision to parked watchers, if it has changed since the last round.
func (h *hub) sendProgress() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sendProgressLocked()
}

// sendProgressLocked does the work of sendProgress for a caller that holds mu.
func (h *hub) sendProgressLocked() {
	durable := h.durable.Load()
	if h.progress.revision == durable {
		return
	}
	h.progress.revision, h.progress.at = durable, time.Now()
	for _, g := range h.groups {
		rest := g.parked[:0]
		for _, w := range g.parked {
			if w.cursor > durable {
				rest = append(rest, w)
				continue
			}
			w.cursor, w.progressDue = durable+1, true
			w.signal()
			h.parked--
		}
		clear(g.parked[len(rest):])
		g.parked = rest
	}
}

// Progress that readers request costs at most about a twentieth of one core: a round wakes each parked watcher,
// which takes about 1 us for each. The next round starts at the earliest after progressPause plus progressCost for
// each parked watcher.
const (
	progressPause = 2 * time.Millisecond
	progressCost  = 20 * time.Microsecond
)

// requestProgress makes parked watchers receive the current revision soon, because the caller of Revision may wait
// until a watcher has reached it.
func (h *hub) requestProgress() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.parked == 0 || h.closed || h.progress.timer != nil || h.progress.revision == h.durable.Load() {
		return
	}
	pause := progressPause + time.Duration(h.parked)*progressCost
	if since := time.Since(h.progress.at); since < pause {
		h.progress.timer = time.AfterFunc(pause-since, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.progress.timer = nil
			h.sendProgressLocked()
		})
		return
	}
	h.sendProgressLocked()
}

// close ends all watchers.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.progress.timer != nil {
		h.progress.timer.Stop()
	}
	for _, g := range h.groups {
		for _, w := range g.parked {
			w.signal()
		}
		g.parked = nil
	}
	h.parked = 0
}

// addWatcher registers the prefix of a watcher. The caller holds mu.
func (h *hub) addWatcher(prefix string) {
	g := h.groups[prefix]
	if g == nil {
		g = &prefixGroup{}
		h.groups[prefix] = g
		if i, found := slices.BinarySearch(h.lengths, len(prefix)); !found {
			h.lengths = slices.Insert(h.lengths, i, len(prefix))
		}
	}
	g.watchers++
}

// removeWatcher undoes addWatcher. The caller holds mu.
func (h *hub) removeWatcher(prefix string) {
	g := h.groups[prefix]
	if g.watchers--; g.watchers > 0 {
		return
	}
	delete(h.groups, prefix)
	for other := range h.groups {
		if len(other) == len(prefix) {
			return
		}
	}
	i, _ := slices.BinarySearch(h.lengths, len(prefix))
	h.lengths = slices.Delete(h.lengths, i, i+1)
}

// watcher implements storage.Watcher, and also cache.ProgressRequester.
type watcher struct {
	hub    *hub
	reads  *reads
	prefix string
	wake   chan struct{} // capacity 1; receives when the watcher is unparked

	// These fields are guarded by hub.mu.
	cursor      int64 // next revision to examine; while parked, no change from it on has matched
	parked      bool
	progressDue bool // the next batch may be empty: progress was requested
	closed      bool

	// Only the goroutine that calls Next uses err.
	err error // the error that ended the watcher
}

// Watch implements storage.Store.
func (s *Store) Watch(ctx context.Context, prefix string, from int64) (storage.Watcher, error) {
	if err := s.lifetime.enter(ctx); err != nil {
		return nil, err
	}
	defer s.lifetime.leave()
	if from < 0 {
		return nil, errNegativeRevision
	}
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if from == 0 {
		from = h.durable.Load() + 1
	}
	if compacted := s.compactor.compacted.Load(); from <= compacted {
		return nil, &storage.CompactedError{Revision: from, Compacted: compacted}
	}
	w := &watcher{hub: h, reads: &s.reads, prefix: prefix, cursor: from, wake: make(chan struct{}, 1)}
	h.addWatcher(prefix)
	return w, nil
}

// signal marks w as not parked and wakes its Next. The caller holds hub.mu and removes w from its group.
func (w *watcher) signal() {
	w.parked = false
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// unpark removes w from its group if it is parked. The caller holds hub.mu.
func (w *watcher) unpark() {
	if !w.parked {
		return
	}
	h := w.hub
	g := h.groups[w.prefix]
	i := slices.Index(g.parked, w)
	last := len(g.parked) - 1
	w.cursor = max(w.cursor, h.durable.Load()+1)
	g.parked[i], g.parked[last] = g.parked[last], nil
	g.parked = g.parked[:last]
	h.parked--
	w.parked = false
}

// Next implements storage.Watcher.
func (w *watcher) Next(ctx context.Context) (storage.Batch, error) {
	if w.err != nil {
		return storage.Batch{}, w.err
	}
	for {
		if err := ctx.Err(); err != nil {
			return storage.Batch{}, err
		}
		b, wait, err := w.poll(ctx)
		if err != nil {
			if ctx.Err() == nil {
				w.err = err
			}
			return storage.Batch{}, err
		}
		if !wait {
			return b, nil
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			h := w.hub
			h.mu.Lock()
			w.unpark()
			h.mu.Unlock()
			return storage.Batch{}, ctx.Err()
		}
	}
}

// poll returns the next batch. If there is none yet, it parks the watcher and returns wait = true.
func (w *watcher) poll(ctx context.Context) (b storage.Batch, wait bool, err error) {
	h := w.hub
	h.mu.Lock()
	if w.closed || h.closed {
		h.mu.Unlock()
		return b, false, storage.ErrClosed
	}
	durable := h.durable.Load()
	if w.cursor > durable {
		defer h.mu.Unlock()
		b, wait = w.parkOrProgress(durable)
		return b, wait, nil
	}
	w.progressDue = false // the batch below has the revision
	if w.cursor < h.ring.first() {
		h.mu.Unlock()
		b, err = w.reads.batchFromLog(ctx, w.prefix, w.cursor)
	} else {
		records := h.ring.from(w.cursor)
		h.mu.Unlock()
		b = collect(records, w.prefix)
	}
	if err != nil {
		return b, false, asDamage(err)
	}
	h.mu.Lock()
	w.cursor = b.Revision + 1
	h.mu.Unlock()
	return b, false, nil
}

// parkOrProgress is called when w has read all changes. If progress is due, it returns an empty batch. Otherwise it
// parks w and returns wait = true. The caller holds hub.mu.
func (w *watcher) parkOrProgress(durable int64) (b storage.Batch, wait bool) {
	if w.progressDue {
		w.progressDue = false
		return storage.Batch{Revision: durable}, false
	}
	select {
	case <-w.wake: // a late signal for an earlier, cancelled Next
	default:
	}
	h := w.hub
	g := h.groups[w.prefix]
	g.parked = append(g.parked, w)
	h.parked++
	w.parked = true
	return b, true
}

// RequestProgress makes the current or the next call of Next return without waiting for a further change. If no
// change matches, it returns an empty batch. The Revision of the batch is at least the revision of the store at
// the time of the request. RequestProgress has no effect on a watcher that waits for a future revision. Any
// goroutine may call it.
func (w *watcher) RequestProgress() {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	durable := h.durable.Load()
	if w.closed || w.cursor > durable+1 {
		return
	}
	if w.parked {
		w.unpark() // no change up to durable matches
		w.signal()
	}
	w.progressDue = true
}

// Close implements storage.Watcher.
func (w *watcher) Close() error {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	w.unpark()
	h.removeWatcher(w.prefix)
	w.signal()
	return nil
}
