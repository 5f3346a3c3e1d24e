package cache

import (
	"context"
	"errors"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
)

// A cursor that is behind the log of its resource catches up: it reads the changes that the log no longer has from
// a watch of the store, until it reaches the log. Such a stream of old changes is expensive for a store: etcd
// holds up to a thousand revisions with their previous values in memory for each stream, for as long as its reader
// is slow. So a process has few streams, and cursors share them:
//
//   - A reader is one open stream of one resource. It keeps the last megabytes of events that it read, each decoded at
//     most once. A cursor whose next event is among them is served from there.
//   - A cursor at or above the last revision of a reader requests that the reader reads on. Cursors at higher revisions
//     are served when the reader reaches them.
//   - A cursor that no reader will reach waits until a reader may be opened. That reader begins at the lowest revision
//     for which a cursor of the resource waits, so many cursors that resume at about the same revision need one reader.
//   - A cursor whose client does not read its connection requests nothing. A reader without requests is closed after
//     readerIdleTimeout, or at once if cursors wait. A reader is also closed if it was open for maxReaderTurn while
//     other cursors waited for that long.
//   - A cursor that got no reader within catchUpPatience ends with a *storage.CompactedError. Its client then lists
//     again.
//
// Example: the limit is one reader, and three cursors of Pods wait at revisions 100, 105 and 900. A reader is opened at
// 100. It serves the first cursor with the events from 101 on, the second one when it has read 105, and the third one
// when it has read 900.

const (
	// maxReaders is the default limit of open streams of a process.
	maxReaders = 4
	// readerBytes bounds the events that a reader keeps, in bytes of their stored values.
	readerBytes = 8 << 20
	// serveBytes limits the bytes of events that a cursor gets at once. It gets more only to complete a revision.
	serveBytes = 256 << 10

	readerIdleTimeout = time.Second
	maxReaderTurn     = 2 * time.Second
	catchUpPatience   = 30 * time.Second
	// readerGrace has two uses. A reader waits that long for the cursors that it has just served, before it reads
	// on for others. A cursor waits that long for a reader that will reach it, before it requests a reader of its
	// own.
	readerGrace = 100 * time.Millisecond
	// checkInterval is the shortest time between two checks of all waiting cursors.
	checkInterval = 20 * time.Millisecond
)

// errNoReader is the reason why a cursor got no stream. The client gets a *storage.CompactedError.
var errNoReader = errors.New("cache: too many watches catch up from the store")

// CatchUp limits the number of open streams of old changes. Several caches of a process may share it, see
// Options.
type CatchUp struct {
	limit int

	mu          sync.Mutex // guards what follows, and fields of readers and waits
	readers     []*catchUpReader
	waits       []*catchUpWait // in the order of their arrival
	lastServed  time.Time      // when a cursor was last served
	lastChecked time.Time      // when assignAll last ran
}

// NewCatchUp returns a limit of n streams; 0 means four.
func NewCatchUp(limit int) *CatchUp {
	if limit <= 0 {
		limit = maxReaders
	}
	return &CatchUp{limit: limit}
}

// Open returns the number of open streams.
func (u *CatchUp) Open() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.readers)
}

// Waiting returns the number of cursors that wait for events of a stream.
func (u *CatchUp) Waiting() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.waits)
}

// oldChange is a change of the store that the log no longer has. All cursors share it. They also share the decoded
// event, which the first call of read creates.
type oldChange struct {
	change storage.Event
	event  atomic.Pointer[Event]
}

// size returns the bytes of the stored values, and the overhead of an event.
func (c *oldChange) size() int64 {
	return int64(len(c.change.Entry.Value)+len(c.change.Prev.Value)) + eventOverhead
}

// read returns the event of the change. The encodings of its objects are not cached.
func (c *oldChange) read(d *decoder) *Event {
	if e := c.event.Load(); e != nil {
		return e
	}
	e := &Event{Revision: c.change.Entry.ModRevision, decoder: d}
	e.prevAt.Store(goneObject)
	if c.change.Prev.ModRevision != 0 {
		e.Prev = d.readDetached(c.change.Prev)
	}
	if !c.change.Deleted {
		e.Object = d.readDetached(c.change.Entry)
	}
	if !c.event.CompareAndSwap(nil, e) {
		return c.event.Load()
	}
	return e
}

// catchUpWait is a cursor that waits for the events after revision.
type catchUpWait struct {
	resource *Resource
	revision int64
	since    time.Time
	done     bool // the cursor was served, or does not wait any more

	ready chan struct{} // closed after the following fields are set
	// events are all events after revision up to upTo.
	events []*oldChange
	upTo   int64
	err    error
}

// catchUpReader is an open stream of old changes of one resource.
type catchUpReader struct {
	catchUp   *CatchUp
	resource  *Resource
	ctx       context.Context
	cancel    context.CancelFunc
	requested chan struct{} // capacity 1: a cursor may need more events

	// These fields are guarded by CatchUp.mu.
	openedAt time.Time
	servedAt time.Time // when the reader last served a cursor
	closed   bool
	events   []*oldChange // all changes after low up to head
	bytes    int64
	low      int64
	head     int64
}

// enter adds a waiting cursor.
func (u *CatchUp) enter(w *catchUpWait) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waits = append(u.waits, w)
	u.assign(w, time.Now())
}

// leave ends the wait of a cursor.
func (u *CatchUp) leave(w *catchUpWait) {
	u.mu.Lock()
	defer u.mu.Unlock()
	w.done = true
}

// check serves or assigns all waiting cursors, at most once per checkInterval. Each waiting cursor calls it repeatedly.
func (u *CatchUp) check() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := time.Now(); now.Sub(u.lastChecked) >= checkInterval {
		u.assignAll(now)
	}
}

// assignAll serves or assigns all waiting cursors. The caller holds mu.
func (u *CatchUp) assignAll(now time.Time) {
	u.lastChecked = now
	u.waits = slices.DeleteFunc(u.waits, func(w *catchUpWait) bool { return w.done })
	for _, w := range u.waits {
		if !w.done {
			u.assign(w, now)
		}
	}
}

// assign serves a cursor, or makes sure that a reader will serve it. The caller holds mu.
func (u *CatchUp) assign(w *catchUpWait, now time.Time) {
	expected := false
	for _, rd := range u.readers {
		if rd.closed || rd.resource != w.resource || w.revision < rd.low {
			continue
		}
		if w.revision < rd.head {
			u.serve(w, rd, now)
			return
		}
		rd.request()
		expected = expected || w.revision == rd.head || now.Sub(w.since) < readerGrace
	}
	if expected {
		return
	}
	if len(u.readers) < u.limit {
		u.open(w.resource, now)
		return
	}
	if now.Sub(w.since) > catchUpPatience && u.lastServed.After(w.since) {
		// Other cursors were served meanwhile, so this cursor was late in turn. If no cursor was served, the store
		// does not answer, and waiting longer may still succeed.
		u.end(w, errNoReader)
		return
	}
	u.makeRoom(w, now)
}

// makeRoom closes the oldest reader that is idle, or that was open for more than maxReaderTurn while w also waited
// for more than maxReaderTurn. It closes none if another reader is being closed already.
func (u *CatchUp) makeRoom(w *catchUpWait, now time.Time) {
	var oldest *catchUpReader
	for _, rd := range u.readers {
		turn := now.Sub(rd.openedAt) > maxReaderTurn && now.Sub(w.since) > maxReaderTurn
		idle := now.Sub(rd.servedAt) > readerGrace && !u.isWanted(rd)
		switch {
		case rd.closed:
			return
		case (idle || turn) && (oldest == nil || rd.openedAt.Before(oldest.openedAt)):
			oldest = rd
		}
	}
	if oldest != nil {
		oldest.close()
	}
}

// isWanted reports whether a cursor waits for events that this reader has not read yet.
func (u *CatchUp) isWanted(rd *catchUpReader) bool {
	return slices.ContainsFunc(u.waits, func(w *catchUpWait) bool {
		return !w.done && w.resource == rd.resource && w.revision >= rd.head
	})
}

// open opens a reader of a resource. It begins at the lowest revision for which a cursor waits that no open reader
// will reach.
func (u *CatchUp) open(r *Resource, now time.Time) {
	from := int64(-1)
	for _, w := range u.waits {
		if !w.done && w.resource == r && !u.willReach(w, now) && (from < 0 || w.revision < from) {
			from = w.revision
		}
	}
	if from < 0 {
		return
	}
	rd := &catchUpReader{
		catchUp: u, resource: r, requested: make(chan struct{}, 1),
		openedAt: now, servedAt: now, low: from, head: from,
	}
	rd.ctx, rd.cancel = context.WithCancel(r.cache.background.ctx)
	if r.cache.background.spawn(rd.run) {
		u.readers = append(u.readers, rd)
	}
}

// willReach reports whether an open reader has the revision of a waiting cursor, or will soon reach it.
func (u *CatchUp) willReach(w *catchUpWait, now time.Time) bool {
	return slices.ContainsFunc(u.readers, func(rd *catchUpReader) bool {
		return !rd.closed && rd.resource == w.resource && rd.low <= w.revision &&
			(w.revision <= rd.head || now.Sub(w.since) < readerGrace)
	})
}

// serve gives a cursor events of a reader. Their number is bounded, but the last revision is always complete.
func (u *CatchUp) serve(w *catchUpWait, rd *catchUpReader, now time.Time) {
	first := sort.Search(len(rd.events), func(i int) bool {
		return rd.events[i].change.Entry.ModRevision > w.revision
	})
	end, upTo, bytes := first, rd.head, int64(0)
	for ; end < len(rd.events); end++ {
		revision := rd.events[end].change.Entry.ModRevision
		if bytes >= serveBytes || end-first >= cursorBatch {
			if last := rd.events[end-1].change.Entry.ModRevision; revision > last {
				upTo = last
				break
			}
		}
		bytes += rd.events[end].size()
	}
	w.events, w.upTo = slices.Clone(rd.events[first:end]), upTo
	w.done = true
	rd.servedAt, u.lastServed = now, now
	close(w.ready)
}

// end ends a cursor's wait with an error.
func (u *CatchUp) end(w *catchUpWait, err error) {
	w.done, w.err = true, err
	close(w.ready)
}

// request makes the reader check whether a cursor wants more.
func (rd *catchUpReader) request() {
	select {
	case rd.requested <- struct{}{}:
	default:
	}
}

// close ends the reader soon. The caller holds CatchUp.mu.
func (rd *catchUpReader) close() {
	rd.closed = true
	rd.cancel()
}

// run reads the stream while cursors need more events, until the reader is closed.
func (rd *catchUpReader) run() {
	h := rd.catchUp
	time.AfterFunc(readerIdleTimeout, rd.closeIdle) // closeIdle repeats this until the reader is closed
	err := rd.stream()
	if rd.ctx.Err() == nil && !isFinal(err) && !isCompacted(err) {
		rd.resource.cache.logger.Warn("cache: reading old changes of the store failed, trying again",
			"resource", rd.resource.config.Resource, "error", err)
		rd.resource.cache.background.pause(100 * time.Millisecond)
	}
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if rd.ctx.Err() == nil {
		rd.fail(err)
	}
	rd.close()
	h.readers = slices.DeleteFunc(h.readers, func(other *catchUpReader) bool { return other == rd })
	h.assignAll(now)
}

// closeIdle closes the reader if no cursor waits for it, and if it has served none for readerIdleTimeout. Otherwise
// it checks again after that time.
func (rd *catchUpReader) closeIdle() {
	h := rd.catchUp
	h.mu.Lock()
	defer h.mu.Unlock()
	if rd.closed {
		return
	}
	if !h.isWanted(rd) && time.Since(rd.servedAt) >= readerIdleTimeout {
		rd.close()
		return
	}
	time.AfterFunc(readerIdleTimeout, rd.closeIdle)
}

// stream reads old changes while cursors request more, until the reader is closed.
func (rd *catchUpReader) stream() error {
	r := rd.resource
	w, err := r.cache.store.Watch(rd.ctx, r.config.Prefix, rd.head+1)
	if err != nil {
		return err
	}
	defer w.Close()
	for rd.awaitDemand() {
		batch, err := w.Next(rd.ctx)
		if err != nil {
			return err
		}
		rd.add(batch)
	}
	return rd.ctx.Err()
}

// awaitDemand waits until a cursor wants more. It returns false if the reader is closed.
func (rd *catchUpReader) awaitDemand() bool {
	timer := time.NewTimer(readerGrace)
	defer timer.Stop()
	for {
		if rd.isDemanded(time.Now()) {
			return rd.ctx.Err() == nil
		}
		timer.Reset(readerGrace / 2)
		select {
		case <-rd.requested:
		case <-timer.C: // it may be time to read on for the cursors at higher revisions
		case <-rd.ctx.Done():
			return false
		}
	}
}

// isDemanded reports whether a cursor waits for events after the last one that was read.
func (rd *catchUpReader) isDemanded(now time.Time) bool {
	h := rd.catchUp
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.waits {
		if w.done || w.resource != rd.resource {
			continue
		}
		ahead := rd.servedAt.Equal(rd.openedAt) || now.Sub(rd.servedAt) >= readerGrace
		if w.revision == rd.head || w.revision > rd.head && ahead {
			return true
		}
	}
	return false
}

// add appends a batch of the stream and serves the cursors that wait for it.
func (rd *catchUpReader) add(batch storage.Batch) {
	h := rd.catchUp
	h.mu.Lock()
	defer h.mu.Unlock()
	before := len(rd.events)
	for i := range batch.Events {
		if batch.Events[i].Entry.ModRevision > rd.head {
			p := &oldChange{change: batch.Events[i]}
			rd.events = append(rd.events, p)
			rd.bytes += p.size()
		}
	}
	rd.head = max(rd.head, batch.Revision)
	h.assignAll(time.Now())
	rd.trim(before)
}

// trim drops events while the reader has more than readerBytes, the oldest first. It drops only the first n
// events, and the rest of a revision of which it has dropped a part.
func (rd *catchUpReader) trim(n int) {
	drop := 0
	for ; drop < n && rd.bytes > readerBytes; drop++ {
		rd.bytes -= rd.events[drop].size()
		rd.low = rd.events[drop].change.Entry.ModRevision
	}
	// Only complete revisions are dropped.
	for ; drop > 0 && drop < len(rd.events) && rd.events[drop].change.Entry.ModRevision == rd.low; drop++ {
		rd.bytes -= rd.events[drop].size()
	}
	rd.events = slices.Delete(rd.events, 0, drop)
}

// fail ends the waits of the cursors that need the events that the stream could not deliver. The caller holds
// CatchUp.mu.
func (rd *catchUpReader) fail(err error) {
	var compacted *storage.CompactedError
	for _, w := range rd.catchUp.waits {
		if w.done || w.resource != rd.resource {
			continue
		}
		switch {
		case isFinal(err):
			rd.catchUp.end(w, err)
		case errors.As(err, &compacted) && (w.revision == rd.head || w.revision < compacted.Compacted):
			rd.catchUp.end(w, &storage.CompactedError{Revision: w.revision + 1, Compacted: compacted.Compacted})
		}
	}
}

// readOld returns the next events from a stream of old changes. If the log covers the cursor's revision, it moves
// the cursor to the log instead.
func (c *Cursor) readOld(ctx context.Context, tick <-chan time.Time) error {
	if c.rejoinLog() {
		return nil
	}
	r := c.resource
	if err := r.err(); err != nil {
		return err
	}
	if c.wait == nil {
		c.wait = &catchUpWait{resource: r, revision: c.revision, since: time.Now(), ready: make(chan struct{})}
		r.cache.catchUp.enter(c.wait)
	}
	// The wait is bounded, so that the cursor checks the log again even if no stream delivers anything.
	timer := time.NewTimer(readerGrace)
	defer timer.Stop()
	select {
	case <-c.wait.ready:
	case <-tick:
		return errTick
	case <-ctx.Done():
		return ctx.Err()
	case <-r.cache.background.ctx.Done():
		return r.err()
	case <-timer.C:
		r.cache.catchUp.check()
		return nil
	}
	w := c.wait
	c.wait = nil
	if errors.Is(w.err, errNoReader) {
		r.cache.logger.Warn("cache: a watch ends because too many others catch up from the store",
			"resource", r.config.Resource, "revision", c.revision)
		return &storage.CompactedError{Revision: c.revision + 1, Compacted: r.published.logStart()}
	}
	if w.err != nil {
		return w.err
	}
	for _, p := range w.events {
		if e := c.oldEvent(p); e != nil {
			c.events = append(c.events, e)
		}
	}
	c.revision = max(c.revision, w.upTo)
	return nil
}

// rejoinLog moves the cursor to the log if the log covers its revision.
func (c *Cursor) rejoinLog() bool {
	r := c.resource
	r.published.mu.RLock()
	ok := r.published.state.Load() != nil && r.published.log.Covers(c.revision)
	if ok {
		c.behind = false
		c.next = r.published.log.After(c.revision)
		// A stream may have returned events to the cursor that the feed has not appended to the log yet. The
		// cursor must skip these in the log.
		c.from = max(c.from, c.revision)
	}
	r.published.mu.RUnlock()
	if ok {
		c.leaveCatchUp()
	}
	return ok
}

// leaveCatchUp ends the cursor's wait for old changes, if it waits.
func (c *Cursor) leaveCatchUp() {
	if c.wait != nil {
		c.resource.cache.catchUp.leave(c.wait)
		c.wait = nil
	}
}

// checkCompacted returns an error if the store has already compacted a change that the cursor still has to read.
func (c *Cursor) checkCompacted() error {
	if compacted := c.resource.cache.store.Stats().CompactedRevision; c.revision+1 <= compacted {
		return &storage.CompactedError{Revision: c.revision + 1, Compacted: compacted}
	}
	return nil
}

// oldEvent returns the event of a change of the store, nil if the cursor is not interested in it.
func (c *Cursor) oldEvent(p *oldChange) *Event {
	r := c.resource
	key := p.change.Entry.Key[len(r.config.Prefix):]
	if !c.matchesNames(r.decoder.names(key)) {
		return nil
	}
	e := p.read(&r.decoder)
	if e.Object == nil && e.Prev == nil || !c.matchesEvent(e) {
		return nil
	}
	return e
}
