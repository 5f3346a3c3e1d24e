package openapi

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/singleflight"
)

// A key identifies one version of a document in one format.
type key struct {
	path   string // empty for OpenAPI v2; indexPath for the index
	format format
	etag   string
}

// cache keeps compressed documents. When it is full, the oldest documents are removed, so
// outdated ones disappear without further work.
type cache struct {
	limit  int
	making singleflight.Group // the documents that are being made, by their keys as text

	mu      sync.Mutex
	entries map[key][]byte // guarded by mu
	order   []key          // guarded by mu; oldest first
	size    int            // guarded by mu; of all entries
}

// errDoNotCache means that the written document may be served, but neither be cached nor get
// its ETag, because a source failed, or something changed while the document was written.
var errDoNotCache = errors.New("openapi: the document must not be cached")

// get returns a cached document, or makes it. Concurrent calls for the same document wait for
// one of them to make it. With errDoNotCache it also returns the document.
func (c *cache) get(k key, write func(io.Writer) error) ([]byte, error) {
	if text := c.find(k); text != nil {
		return text, nil
	}
	text, err, _ := c.making.Do(fmt.Sprintf("%d %q %q", k.format, k.path, k.etag), func() (any, error) {
		if text := c.find(k); text != nil {
			return text, nil // made a moment ago
		}
		text, err := compress(write)
		if err == nil {
			c.keep(k, text)
		}
		return text, err
	})
	return text.([]byte), err
}

// find returns a cached document, nil if there is none.
func (c *cache) find(k key) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[k]
}

func (c *cache) keep(k key, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = map[key][]byte{}
	}
	c.entries[k] = text
	c.order = append(c.order, k)
	c.size += len(text)
	for c.size > c.limit && len(c.order) > 0 {
		oldest := c.order[0]
		c.order = c.order[1:]
		c.size -= len(c.entries[oldest])
		delete(c.entries, oldest)
	}
}

func compress(write func(io.Writer) error) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	err := write(z)
	if err != nil && !errors.Is(err, errDoNotCache) {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return bytes.Clone(b.Bytes()), err // without the room to grow
}
