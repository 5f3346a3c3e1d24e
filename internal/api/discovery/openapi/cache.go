package openapi

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"weak"

	"golang.org/x/sync/singleflight"
)

// A key identifies one version of a document in one format.
type key struct {
	path   string // empty for OpenAPI v2; indexPath for the index
	format format
	etag   string
}

// A document is the compressed text of a document. It is immutable; all who read it share it.
type document struct {
	compressed []byte
	// size is the number of bytes of the text itself.
	size int64
}

// cache keeps compressed documents. When it is full, the oldest documents are removed, so
// outdated ones disappear without further work.
type cache struct {
	limit  int
	making singleflight.Group // the documents that are being made, by their keys as text

	mu      sync.Mutex
	entries map[key]*document // guarded by mu
	order   []key             // guarded by mu; oldest first
	size    int               // guarded by mu; bytes of all entries
	// used has each cacheable document while something refers to it, such as a response to a slow client. So a
	// document that is too large for the cache, or was removed from it, is not made again for each reader.
	used map[key]weak.Pointer[document] // guarded by mu
}

// errDoNotCache means that the written document may be served, but neither be cached nor get
// its ETag, because a source failed, or something changed while the document was written.
var errDoNotCache = errors.New("openapi: the document must not be cached")

// get returns a cached document, or makes it. Concurrent calls for the same document wait for
// one of them to make it. With errDoNotCache it also returns the document.
func (c *cache) get(k key, write func(io.Writer) error) (*document, error) {
	if d := c.find(k); d != nil {
		return d, nil
	}
	d, err, _ := c.making.Do(fmt.Sprintf("%d %q %q", k.format, k.path, k.etag), func() (any, error) {
		if d := c.find(k); d != nil {
			return d, nil // made a moment ago
		}
		d, err := compress(write)
		if err == nil {
			c.keep(k, d)
		}
		return d, err
	})
	return d.(*document), err
}

// find returns a document that is cached or in use, nil if there is none.
func (c *cache) find(k key) *document {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.entries[k]; d != nil {
		return d
	}
	return c.used[k].Value()
}

func (c *cache) keep(k key, d *document) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries, c.used = map[key]*document{}, map[key]weak.Pointer[document]{}
	}
	c.entries[k] = d
	c.order = append(c.order, k)
	c.size += len(d.compressed)
	for c.size > c.limit && len(c.order) > 0 {
		oldest := c.order[0]
		c.order = c.order[1:]
		c.size -= len(c.entries[oldest].compressed)
		delete(c.entries, oldest)
	}
	c.used[k] = weak.Make(d)
	runtime.AddCleanup(d, c.forget, k)
}

// forget removes a document that nothing refers to any more.
func (c *cache) forget(k key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used[k].Value() == nil {
		delete(c.used, k)
	}
}

// compress returns the document that write writes. It is never nil.
func compress(write func(io.Writer) error) (*document, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	count := &counter{out: z}
	err := write(count)
	if err != nil && !errors.Is(err, errDoNotCache) {
		return &document{}, err
	}
	if err := z.Close(); err != nil {
		return &document{}, err
	}
	return &document{bytes.Clone(b.Bytes()), count.n}, err // a copy without unused capacity
}

// counter counts the bytes that are written.
type counter struct {
	out io.Writer
	n   int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.out.Write(b)
	c.n += int64(n)
	return n, err
}
