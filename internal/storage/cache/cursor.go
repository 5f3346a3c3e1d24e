package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/internal/storage/cache/interest"
)

const (
	// cursorBatch limits the number of events that Next returns, and cursorBytes limits the bytes of their
	// objects, because events that the caller has not sent yet may no longer be in the log. Next returns more only
	// to complete a revision, or one large event.
	cursorBatch = 128
	cursorBytes = 32 << 10
	// cursorScan is the number of events of the log that a cursor examines before it releases the lock, so that
	// the feed can append events.
	cursorScan = 1024
)

// Interest selects the objects that a watcher wants. An object must match all fields that are set. The zero value
// selects everything.
type Interest struct {
	Namespace string // all objects of a namespace
	Name      string // objects of that name
	// Index and Value select by an indexed field, one of Config.Indexes; an
	// empty Index does not select.
	Index, Value string
}

// Cursor is the position of a watcher in the log of a resource. It has no goroutine and no buffer, so a slow
// cursor costs other cursors nothing. If the log no longer has its position, the cursor catches up from the store,
// and takes turns with others. It must be used by one goroutine only.
type Cursor struct {
	resource *Resource
	interest Interest
	field    int   // position of interest.Index in Config.Indexes, -1 for none
	from     int64 // Next skips events up to this revision: they were not requested or have been returned

	posting *interest.Posting[wakeup] // nil if the cursor reads the whole log
	next    uint64                    // position in the log of the next event to examine
	// revision is the revision up to which Next has returned all events.
	revision int64
	// behind means that the cursor catches up from the store instead of reading the log. wait is its entry in
	// CatchUp.waits, or nil if it does not wait.
	behind bool
	wait   *catchUpWait

	events []*Event
	bytes  int // size of the objects of events
	closed bool
}

// Watch returns a cursor over the events after revision from whose object matches the interest before or after the
// change. If the log no longer has that revision, the cursor catches up from the store (see CatchUp). If the store
// has compacted the revision, or too many cursors catch up, Watch or a later Next returns a
// *storage.CompactedError. For a short time after the removal of a resource, Watch can still read its log. The
// caller must close the cursor.
func (r *Resource) Watch(ctx context.Context, from int64, in Interest) (*Cursor, error) {
	c := &Cursor{resource: r, interest: in, field: -1, from: from, revision: from}
	if in.Index != "" {
		if c.field = slices.Index(r.config.Indexes, in.Index); c.field < 0 {
			return nil, fmt.Errorf("cache: %s has no index %q", r.config.Resource, in.Index)
		}
	}
	for !r.published.join(c, &r.usage.used) {
		err := r.waitLoaded(ctx, 0)
		if errors.Is(err, ErrRemoved) && r.published.joinRemoved(c) {
			return c, nil
		}
		if err != nil {
			return nil, err
		}
	}
	if c.behind {
		if err := c.checkCompacted(); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// interestKey returns the key of the shortest posting list that contains all events the cursor wants. It returns
// false if the cursor has to read the whole log.
func (c *Cursor) interestKey() (interest.Key, bool) {
	switch in := c.interest; {
	case in.Name != "" && !c.resource.config.Namespaced:
		return interest.Key{Kind: interest.Object, Value: in.Name}, true
	case in.Name != "" && in.Namespace != "":
		return interest.Key{Kind: interest.Object, Value: in.Namespace + "/" + in.Name}, true
	case in.Name != "":
		return interest.Key{Kind: interest.Name, Value: in.Name}, true
	case in.Index != "":
		return interest.Key{Kind: interest.Kind(c.field), Value: in.Value}, true
	case in.Namespace != "":
		return interest.Key{Kind: interest.Namespace, Value: in.Namespace}, true
	}
	return interest.Key{}, false
}

// Next returns the next events in the order of revisions, and the revision up to which it has now returned all
// events. It never returns only a part of a revision. It waits until an event matches the interest or ctx ends.
// After the error of ctx the cursor can still be used, so a caller that has other work to do at a certain time can
// set a deadline. Events are shared; the slice is valid until the next call.
//
// Other errors end the cursor: *storage.CompactedError if the cursor is behind the log and the store has compacted
// events that it has not seen, storage.ErrClosed, storage.ErrFailed, and ErrRemoved after the events that the log had
// when the resource was removed.
func (c *Cursor) Next(ctx context.Context) ([]*Event, int64, error) {
	return c.NextOr(ctx, nil)
}

// NextOr is like Next, but it also returns, without events or an error, when tick delivers a value. One timer for
// a whole watch is cheaper than a deadline for each call.
func (c *Cursor) NextOr(ctx context.Context, tick <-chan time.Time) ([]*Event, int64, error) {
	clear(c.events)
	c.events, c.bytes = c.events[:0], 0
	for {
		var wait <-chan struct{}
		var err error
		if c.behind {
			err = c.readOld(ctx, tick)
		} else {
			wait, err = c.collect()
		}
		switch {
		case errors.Is(err, errTick):
			return nil, c.revision, nil
		case err != nil:
			return nil, c.revision, err
		case len(c.events) > 0:
			return c.events, c.revision, nil
		case wait == nil:
			if err := ctx.Err(); err != nil {
				return nil, c.revision, err
			}
			continue
		}
		c.events = nil // free the memory: the wait may be long
		select {
		case <-wait: // wake has counted the cursor as busy
		case <-tick:
			c.stopWaiting(wait)
			return nil, c.revision, nil
		case <-ctx.Done():
			c.stopWaiting(wait)
			return nil, c.revision, ctx.Err()
		}
	}
}

// errTick ends a read of old changes when a value arrives on the caller's channel tick.
var errTick = errors.New("cache: tick")

// Busy returns the names of the resources with a cursor that is not waiting for the next event: it has events to
// deliver, or the caller of Next is using the events of the last call. The result is only reliable if there was no
// write to the store meanwhile, and if Applied returns the revision of the store. The caller must check both.
func (c *Cache) Busy() (names []string) {
	for _, r := range c.all() {
		if r.published.busy.Load() > 0 {
			names = append(names, cmp.Or(r.config.Resource, r.config.Prefix))
		}
	}
	return names
}

// LastChanged returns the name of an object that changed at the revision that Applied returns. It returns "" if no
// log has such an event: resources that are neither read nor watched have no log.
func (c *Cache) LastChanged() (name string) {
	newest := c.Applied()
	for _, r := range c.all() {
		if e := r.published.last(); e != nil && e.Revision >= newest {
			name = path.Join(cmp.Or(r.config.Resource, r.config.Prefix), e.latest().Namespace, e.latest().Name)
		}
	}
	return name
}

// Revision returns the revision up to which Next has returned everything. Without matching events it advances with
// the store, so bookmarks use it.
func (c *Cursor) Revision() int64 {
	if c.closed || c.behind {
		return c.revision
	}
	r := c.resource
	tail := r.cache.feed.applied.Load() // before the log is read
	r.published.mu.RLock()
	defer r.published.mu.RUnlock()
	st := r.published.state.Load()
	if st == nil || r.err() != nil || c.next < r.published.completeFrom {
		return c.revision
	}
	if c.posting == nil || c.next < c.posting.Floor() {
		if c.next < r.published.log.Next() {
			return c.revision
		}
	} else if len(c.posting.Since(c.next)) > 0 {
		return c.revision
	}
	c.next = r.published.log.Next()
	c.revision = max(c.revision, tail, st.revision)
	return c.revision
}

// Close releases the cursor. It must not be called during Next.
func (c *Cursor) Close() {
	if c.closed {
		return
	}
	c.closed = true
	c.leaveCatchUp()
	c.resource.published.leave(c)
}

// collect takes the next events for the cursor from the log. If there are none, it returns the channel that is
// closed when there may be some. If it returns nil and there are no events, it must be called again.
func (c *Cursor) collect() (<-chan struct{}, error) {
	r := c.resource
	tail := r.cache.feed.applied.Load() // before the log is read
	r.published.mu.RLock()
	defer r.published.mu.RUnlock()
	ended := r.err()
	if ended != nil && !errors.Is(ended, ErrRemoved) {
		return nil, ended
	}
	if c.next < r.published.completeFrom {
		c.behind = true
		return nil, nil
	}
	if c.posting != nil && c.next >= c.posting.Floor() {
		for _, p := range c.posting.Since(c.next) {
			if !c.takeEvent(p) {
				return nil, nil
			}
		}
		c.next = r.published.log.Next()
	} else {
		if c.next < r.published.log.First() {
			c.behind = true
			return nil, nil
		}
		if !c.scan() {
			return nil, nil
		}
	}
	if len(c.events) > 0 && ended != nil {
		return nil, nil // the next call returns the error
	}
	if ended != nil {
		return nil, ended
	}
	c.revision = max(c.revision, tail, r.published.state.Load().revision)
	if len(c.events) > 0 {
		return nil, nil
	}
	g := c.wakeup()
	g.waiting.Add(1)
	r.published.busy.Add(-1)
	return g.wait(), nil
}

// wakeup returns the wakeup on which the cursor waits.
func (c *Cursor) wakeup() *wakeup {
	if c.posting != nil {
		return &c.posting.User
	}
	return &c.resource.published.wakeup
}

// stopWaiting ends the wait of a cursor for a channel of collect and counts the cursor as busy, unless wake has
// done this already.
func (c *Cursor) stopWaiting(wait <-chan struct{}) {
	r := c.resource
	r.published.mu.RLock()
	defer r.published.mu.RUnlock()
	g := c.wakeup()
	if p := g.ch.Load(); p != nil && (<-chan struct{})(*p) == wait {
		g.waiting.Add(-1)
		r.published.busy.Add(1)
	}
}

// scan reads events of the whole log. Their number is bounded, but the last revision is always complete. It
// reports whether it reached the end of the log.
func (c *Cursor) scan() bool {
	log := &c.resource.published.log
	end := min(log.Next(), c.next+cursorScan)
	for c.next < log.Next() {
		if c.next >= end && log.Revision(c.next) > log.Revision(c.next-1) {
			c.revision = max(c.revision, log.Revision(c.next-1))
			return false
		}
		if !c.takeEvent(c.next) {
			return false
		}
	}
	return true
}

// takeEvent reads the event at a position. If the batch is full and a new revision begins, it returns false and leaves
// the event for the next call.
func (c *Cursor) takeEvent(position uint64) bool {
	e := c.resource.published.log.Get(position)
	size := len(e.latest().Data)
	n := len(c.events)
	full := n >= cursorBatch || n > 0 && c.bytes+size > cursorBytes
	if full && e.Revision > c.events[n-1].Revision {
		c.revision = max(c.revision, c.events[n-1].Revision)
		return false
	}
	c.next = position + 1
	if e.Revision > c.from && c.matchesEvent(e) {
		c.events = append(c.events, e)
		c.bytes += size
	}
	return true
}

// matchesEvent reports whether the object matches the interest before or after the event.
func (c *Cursor) matchesEvent(e *Event) bool {
	return e.Object != nil && c.matches(e.Object) || e.Prev != nil && c.matches(e.Prev)
}

// matches reports whether an object may match the interest. The fields of an unread object are unknown, so they match.
func (c *Cursor) matches(o *Object) bool {
	return c.matchesNames(o.Namespace, o.Name) &&
		(c.field < 0 || o.Err() != nil || c.field < len(o.Fields) && o.Fields[c.field] == c.interest.Value)
}

func (c *Cursor) matchesNames(namespace, name string) bool {
	return (c.interest.Namespace == "" || c.interest.Namespace == namespace) &&
		(c.interest.Name == "" || c.interest.Name == name)
}
