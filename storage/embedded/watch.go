package embedded

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/storage"
)

// hub holds the ring and the watchers. A watcher that waits is parked: it is not
// looked at until a change matches its prefix, so an idle watcher costs a commit
// nothing. Parked under a prefix, watchers are found by looking up each prefix
// length in use, not by going through them.
type hub struct {
	// durable is the store's current revision. Written under mu.
	durable atomic.Int64

	mu      sync.Mutex // guards what follows and every watcher's fields marked so
	ring    *ring
	groups  map[string]*prefixGroup // by prefix; only those with watchers
	lengths []int                   // the distinct lengths of those prefixes, ascending
	parked  int                     // number of parked watchers
	closed  bool

	told      int64       // revision at the last progress round
	toldAt    time.Time   // when that was
	scheduled *time.Timer // runs the next round; nil if none is due
}

// prefixGroup is the watchers of one prefix.
type prefixGroup struct {
	watchers int
	parked   []*watcher
}

func newHub(revision int64, ringBytes int) *hub {
	h := &hub{ring: newRing(ringBytes, revision+1), groups: make(map[string]*prefixGroup)}
	h.durable.Store(revision)
	return h
}

// publish makes durable records visible and wakes the watchers they match.
func (h *hub) publish(records []*record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, rec := range records {
		h.ring.append(rec)
		if h.parked > 0 {
			h.wakeMatching(rec)
		}
	}
	h.durable.Store(records[len(records)-1].revision)
}

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
					rest = append(rest, w) // waits for the future
					continue
				}
				w.cursor = rec.revision // nothing before it matched
				w.wakeParked()
				h.parked--
			}
			clear(g.parked[len(rest):])
			g.parked = rest
		}
	}
}

// progress tells parked watchers the current revision, if it moved.
func (h *hub) progress() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.progressLocked()
}

func (h *hub) progressLocked() {
	durable := h.durable.Load()
	if h.told == durable {
		return
	}
	h.told, h.toldAt = durable, time.Now()
	for _, g := range h.groups {
		rest := g.parked[:0]
		for _, w := range g.parked {
			if w.cursor > durable {
				rest = append(rest, w)
				continue
			}
			w.cursor, w.progress = durable+1, true
			w.wakeParked()
			h.parked--
		}
		clear(g.parked[len(rest):])
		g.parked = rest
	}
}

// Cost of telling watchers about progress on request, bounded to about a
// twentieth of one core: a round wakes each parked watcher, at about 1 us, and
// is not repeated before progressPause plus progressCost a watcher.
const (
	progressPause = 2 * time.Millisecond
	progressCost  = 20 * time.Microsecond
)

// requestProgress lets parked watchers know the current revision, soon: who
// asks for it may wait until a watcher has reached it.
func (h *hub) requestProgress() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.parked == 0 || h.closed || h.scheduled != nil || h.told == h.durable.Load() {
		return
	}
	pause := progressPause + time.Duration(h.parked)*progressCost
	if since := time.Since(h.toldAt); since < pause {
		h.scheduled = time.AfterFunc(pause-since, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.scheduled = nil
			h.progressLocked()
		})
		return
	}
	h.progressLocked()
}

// close ends all watchers.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.scheduled != nil {
		h.scheduled.Stop()
	}
	for _, g := range h.groups {
		for _, w := range g.parked {
			w.wakeParked()
		}
		g.parked = nil
	}
	h.parked = 0
}

// join registers a watcher's prefix.
func (h *hub) join(prefix string) {
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

// leave undoes join.
func (h *hub) leave(prefix string) {
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

// watcher implements storage.Watcher. Beyond the interface it has
// RequestProgress.
type watcher struct {
	store  *Store
	prefix string
	wake   chan struct{} // capacity 1; receives when the watcher is unparked

	// Guarded by hub.mu.
	cursor   int64 // next revision to look at; while parked, nothing since matched
	parked   bool
	progress bool // an empty batch is due
	closed   bool

	// Of the goroutine that calls Next.
	err error // the error that ended it
}

// Watch implements storage.Store.
func (s *Store) Watch(ctx context.Context, prefix string, from int64) (storage.Watcher, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if from < 0 {
		return nil, errNegativeRevision
	}
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if from == 0 {
		from = h.durable.Load() + 1
	}
	if compacted := s.compacted.Load(); from <= compacted {
		return nil, &storage.CompactedError{Revision: from, Compacted: compacted}
	}
	w := &watcher{store: s, prefix: prefix, cursor: from, wake: make(chan struct{}, 1)}
	h.join(prefix)
	return w, nil
}

// wakeParked unparks w; the caller removes it from its group. Requires hub.mu.
func (w *watcher) wakeParked() {
	w.parked = false
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// unpark takes w out of its group. Requires hub.mu.
func (w *watcher) unpark() {
	if !w.parked {
		return
	}
	h := w.store.hub
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
			h := w.store.hub
			h.mu.Lock()
			w.unpark()
			h.mu.Unlock()
			return storage.Batch{}, ctx.Err()
		}
	}
}

// poll returns the next batch, or parks the watcher and says wait.
func (w *watcher) poll(ctx context.Context) (b storage.Batch, wait bool, err error) {
	h := w.store.hub
	h.mu.Lock()
	if w.closed || h.closed {
		h.mu.Unlock()
		return b, false, storage.ErrClosed
	}
	durable := h.durable.Load()
	if w.cursor > durable {
		defer h.mu.Unlock()
		b, wait = w.idle(durable)
		return b, wait, nil
	}
	w.progress = false // what follows tells the revision
	if w.cursor < h.ring.first() {
		h.mu.Unlock()
		b, err = w.store.history(ctx, w.prefix, w.cursor)
	} else {
		records := h.ring.from(w.cursor)
		h.mu.Unlock()
		b = collect(records, w.prefix)
	}
	if err != nil {
		return b, false, err
	}
	h.mu.Lock()
	w.cursor = b.Revision + 1
	h.mu.Unlock()
	return b, false, nil
}

// idle parks w, which has seen everything there is, unless an empty batch is
// due. Requires hub.mu.
func (w *watcher) idle(durable int64) (b storage.Batch, wait bool) {
	if w.progress {
		w.progress = false
		return storage.Batch{Revision: durable}, false
	}
	select {
	case <-w.wake: // left over from a Next that was cancelled
	default:
	}
	h := w.store.hub
	g := h.groups[w.prefix]
	g.parked = append(g.parked, w)
	h.parked++
	w.parked = true
	return b, true
}

// RequestProgress makes the watcher's current or following Next return at once,
// if need be with a batch that has no events. Its Revision is then at least what
// the store's was when RequestProgress was called. A watcher that waits for a
// future revision is left alone. It may be called from any goroutine.
func (w *watcher) RequestProgress() {
	h := w.store.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	durable := h.durable.Load()
	if w.closed || w.cursor > durable+1 {
		return
	}
	if w.parked {
		w.unpark() // all up to durable is known not to match
		w.wakeParked()
	}
	w.progress = true
}

// Close implements storage.Watcher.
func (w *watcher) Close() error {
	h := w.store.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	w.unpark()
	h.leave(w.prefix)
	w.wakeParked()
	return nil
}
