package rest

import (
	"context"
	"errors"
	"time"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// A watch in a version that objects have to be converted to needs a conversion webhook for its events. While the
// webhook fails, the watch stays open, sends nothing, and tries the same event again after firstRetry, and then
// after twice as long each time, up to lastRetry. It ends with its timeout, or with 410 if the event is no longer
// in the log and the history, or about 30 s after its definition is removed. Between the tries it keeps only a
// place and no event, and it opens a new cursor for each try.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 4 * time.Second
)

// A place is how far a watch has got: it has sent the events before a revision, and some of those of the revision.
type place struct {
	revision int64
	events   int // of the revision; one transaction may change several objects
}

// pass moves the place behind an event.
func (p *place) pass(e *cache.Event) {
	if e.Revision != p.revision {
		*p = place{revision: e.Revision}
	}
	p.events++
}

// skip removes the events before the place from the beginning of events. again is the number of events of the
// place's revision that are still to be skipped.
func (p *place) skip(events []*cache.Event, again int) (_ []*cache.Event, left int) {
	for ; len(events) > 0 && again > 0; again-- {
		if events[0].Revision != p.revision {
			return events, 0
		}
		events = events[1:]
	}
	return events, again
}

// follow sends the events after revision from, until the watch ends.
func (st *watchStream) follow(ctx context.Context, from int64) error {
	st.at = place{revision: from + 1}
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		before := st.at
		err := st.followOn(ctx)
		if !isConversionError(err) {
			return err
		}
		// The watch got further, so the webhook worked meanwhile.
		if st.at != before {
			wait = firstRetry
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// interrupted is called when the event e cannot be rendered because of err. before are the bytes of the events before
// e. If the reason is a failed conversion, it sends before, so that the next try can begin with e.
func (st *watchStream) interrupted(before []byte, columnsSent bool, e *cache.Event, err error) error {
	if !isConversionError(err) {
		return err
	}
	st.columnsSent = columnsSent
	if e.Revision != st.at.revision {
		st.at = place{revision: e.Revision}
	}
	if gone := st.send(before); gone != nil {
		return gone
	}
	return err
}

func isConversionError(err error) bool {
	unconverted := (*registry.ConversionError)(nil)
	return errors.As(err, &unconverted)
}
