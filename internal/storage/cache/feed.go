package cache

import (
	"errors"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
)

// runFeed is the goroutine of the feed. It passes the changes of the store to the resources, batch by batch, until
// the cache or the store is closed.
func (c *Cache) runFeed() {
	ok := c.retry("read the revision", func() error {
		revision, err := c.store.Revision(c.background.ctx)
		c.feed.applied.Store(revision)
		return err
	})
	close(c.feed.started) // even after a failure, because loads wait for it
	if !ok {
		return
	}
	for {
		err := c.stream()
		switch {
		case c.background.ctx.Err() != nil:
			return
		case isFinal(err):
			c.fail(err)
			return
		case isCompacted(err):
			if !c.retry("relist", c.relist) {
				return
			}
		default:
			c.logger.Warn("cache: watch of the store ended, starting again", "revision", c.feed.applied.Load(), "error", err)
			if !c.background.pause(50 * time.Millisecond) {
				return
			}
		}
	}
}

// retry calls do until it succeeds. It returns false if the cache ended.
func (c *Cache) retry(what string, do func() error) bool {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := do()
		switch {
		case c.background.ctx.Err() != nil:
			return false
		case err == nil:
			return true
		case isFinal(err):
			c.fail(err)
			return false
		}
		c.logger.Warn("cache: cannot "+what+", trying again", "error", err)
		if !c.background.pause(wait) {
			return false
		}
	}
}

// isFinal reports whether the store cannot be used any more after this error.
func isFinal(err error) bool {
	return errors.Is(err, storage.ErrClosed) || errors.Is(err, storage.ErrFailed)
}

// isCompacted reports whether the store has compacted the requested revision.
func isCompacted(err error) bool {
	var compacted *storage.CompactedError
	return errors.As(err, &compacted)
}

// stream applies the changes after the applied revision until the watch ends.
func (c *Cache) stream() error {
	w, err := c.store.Watch(c.background.ctx, Root, c.feed.applied.Load()+1)
	if err != nil {
		return err
	}
	defer w.Close()
	c.feed.watch.Store(&w)
	defer c.feed.watch.Store(nil)
	var d demux
	for {
		batch, err := w.Next(c.background.ctx)
		if err != nil {
			return err
		}
		if len(batch.Events) > 0 {
			d.split(c, batch.Events)
			for _, r := range d.touched {
				r.config.Metrics.Add(EventsReceived, len(r.incoming))
				r.receive(r.incoming, batch.Revision)
			}
			d.reset()
		} else {
			c.metrics.Add(Bookmarks, 1)
		}
		c.advance(batch.Revision)
	}
}

// advance publishes the applied revision.
func (c *Cache) advance(revision int64) {
	if revision > c.feed.applied.Load() {
		c.feed.applied.Store(revision)
		c.feed.waiters.wake(revision)
	}
}

// demux sorts the events of a batch by resource. Only the feed uses it and Resource.incoming.
type demux struct{ touched []*Resource }

// split appends each event to the incoming events of each resource that has its key, and appends these resources
// to touched.
func (d *demux) split(c *Cache, events []storage.Event) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i := range events {
		key := events[i].Entry.Key
		// Prefixes end with a slash. One prefix may begin with another, so a key can be in several resources.
		for at, depth := 0, 0; depth < c.maxDepth; depth++ {
			next := strings.IndexByte(key[at:], '/')
			if next < 0 {
				break
			}
			at += next + 1
			if r := c.resources[key[:at]]; r != nil {
				if len(r.incoming) == 0 {
					d.touched = append(d.touched, r)
				}
				r.incoming = append(r.incoming, events[i])
			}
		}
	}
}

// reset empties the incoming events of the touched resources, and does not keep large buffers.
func (d *demux) reset() {
	for _, r := range d.touched {
		clear(r.incoming)
		r.incoming = r.incoming[:0]
		if cap(r.incoming) > 1024 {
			r.incoming = nil
		}
	}
	clear(d.touched)
	d.touched = d.touched[:0]
}

func slashes(s string) int { return strings.Count(s, "/") }

// relist is called after the store has compacted changes that the feed had not received. It reads the loaded
// resources again and brings them to one revision. The differences are appended to the logs, so that cursors miss
// no change.
func (c *Cache) relist() error {
	base, err := c.store.Revision(c.background.ctx)
	if err != nil {
		return err
	}
	c.logger.Warn(
		"cache: the store has compacted what the cache has not read, reading all resources again", "from", c.feed.applied.Load(), "to", base,
	)
	for _, r := range c.all() {
		if err := r.relist(c.background.ctx, base); err != nil {
			return err
		}
	}
	c.advance(base)
	return nil
}
