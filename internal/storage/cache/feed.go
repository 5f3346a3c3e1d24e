package cache

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
)

// runFeed is the feed: it passes the changes of the store to the loaded resources, batch by batch, until the cache
// or the store is closed.
func (c *Cache) runFeed() {
	ok := c.retry("read the revision", func() error {
		revision, err := c.store.Revision(c.background.ctx)
		c.feed.applied.Store(revision)
		return err
	})
	close(c.feed.started) // in any case: loads wait for it
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
			if !c.pause(50 * time.Millisecond) {
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
		if !c.pause(wait) {
			return false
		}
	}
}

// pause waits for d. It returns false if the cache is closed before.
func (c *Cache) pause(d time.Duration) bool {
	select {
	case <-c.background.ctx.Done():
		return false
	case <-time.After(d):
		return true
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

// split appends each event to the incoming events of its resources, and the resources to touched.
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

// relist brings the loaded resources to one revision by reading them from the store again, after the store has
// compacted changes that the feed had not seen. The differences are appended to the logs, so that cursors miss
// nothing.
func (c *Cache) relist() error {
	base, err := c.store.Revision(c.background.ctx)
	if err != nil {
		return err
	}
	c.logger.Warn(
		"cache: the store's history is compacted, reading all resources again", "from", c.feed.applied.Load(), "to", base,
	)
	for _, r := range c.all() {
		if err := r.relist(c.background.ctx, base); err != nil {
			return err
		}
	}
	c.advance(base)
	return nil
}

// Pages of the store are read up to this number of entries or about this number of bytes.
const (
	firstPage = 500
	maxPage   = 1000
	pageBytes = 1 << 20
	// readBytes ends a page, if the store can end it by bytes: what is read stays in the cache of a processor until it is encoded.
	readBytes = 512 << 10
)

// pages reads the entries with a prefix at one revision, page by page. If the store cannot limit the bytes of a page,
// it limits the number of entries, by their average size in the previous page.
type pages struct {
	request storage.RangeRequest
	wanted  int // entries that are still wanted; all if not positive
	done    bool
}

// newPages starts at the key from, or at the first key with the prefix. Revision 0 is the latest when the first
// page is read. most is the number of wanted entries; all if it is not positive.
func newPages(prefix, from string, revision int64, wanted int) *pages {
	p := &pages{wanted: wanted, request: storage.RangeRequest{
		Start: max(prefix, from), End: storage.PrefixEnd(prefix), Revision: revision, Bytes: readBytes, Uncounted: true,
	}}
	p.setLimit(firstPage)
	return p
}

// setLimit bounds the entries of the next page by limit and by the number of wanted entries.
func (p *pages) setLimit(limit int) {
	p.request.Limit = limit
	if p.wanted > 0 {
		p.request.Limit = min(limit, p.wanted)
	}
}

// next returns the next page of a resource, read from the store or its past. It may have more entries than wanted.
func (p *pages) next(ctx context.Context, r *Resource, from reader) ([]storage.Entry, error) {
	page, err := r.rangeStore(ctx, from, p.request)
	if err != nil {
		return nil, err
	}
	p.request.Revision = page.Revision
	n := len(page.Entries)
	if !page.More || n == 0 {
		p.done = true
		return page.Entries, nil
	}
	p.request.Start = page.Entries[n-1].Key + "\x00"
	bytes := 0
	for i := range page.Entries {
		bytes += len(page.Entries[i].Value)
	}
	if p.wanted > 0 {
		// A caller that reads on after the wanted number looks for objects that match a selector.
		p.wanted = max(p.wanted-n, firstPage)
	}
	p.setLimit(min(max(pageBytes/(bytes/n+1), 1), maxPage))
	return page.Entries, nil
}

// scan reads the entries of the resource at one revision (0 is the latest), page by page, until each returns false. It
// returns the revision, and whether it reached the end.
func (r *Resource) scan(ctx context.Context, revision int64, each func(storage.Entry) bool) (bool, int64, error) {
	p := newPages(r.config.Prefix, "", revision, 0)
	for !p.done {
		entries, err := p.next(ctx, r, r.cache.store)
		if err != nil {
			return false, 0, err
		}
		for i := range entries {
			if !each(entries[i]) {
				return false, p.request.Revision, nil
			}
		}
	}
	return true, p.request.Revision, nil
}
