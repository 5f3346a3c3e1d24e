package openapi

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"sync"
)

// A key names one state of a document in one format.
type key struct {
	path   string // empty for OpenAPI v2, indexPath for the index
	format format
	etag   string
}

// cache keeps documents as gzip. The oldest make room for new ones, so that what is
// out of date goes without being looked for.
type cache struct {
	limit int

	mu      sync.Mutex
	entries map[key]*cacheEntry // guarded by mu
	order   []key               // guarded by mu; oldest first; entries of known size
	size    int                 // guarded by mu
}

type cacheEntry struct {
	done chan struct{} // closed when made
	text []byte
	err  error
}

// errNotKept tells that what was written is to be served, but not kept nor called
// by its ETag: a source failed, or something changed while it was written.
var errDoNotCache = errors.New("openapi: not to be kept")

// get returns a document. Several who ask for one that is not there wait for
// the first of them to make it. With errNotKept it returns a document too.
func (c *cache) get(k key, write func(io.Writer) error) ([]byte, error) {
	c.mu.Lock()
	e, found := c.entries[k]
	if !found {
		e = &cacheEntry{done: make(chan struct{})}
		if c.entries == nil {
			c.entries = map[key]*cacheEntry{}
		}
		c.entries[k] = e
	}
	c.mu.Unlock()
	if found {
		<-e.done
		return e.text, e.err
	}
	made := false
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if made && e.err == nil {
			c.keepLocked(k, len(e.text))
		} else {
			delete(c.entries, k)
		}
		if !made {
			e.err = io.ErrUnexpectedEOF // for those who wait, when write panics
		}
		close(e.done)
	}()
	e.text, e.err = compress(write)
	made = true
	return e.text, e.err
}

func (c *cache) keepLocked(k key, size int) {
	c.order = append(c.order, k)
	c.size += size
	for c.size > c.limit && len(c.order) > 0 {
		oldest := c.order[0]
		c.order = c.order[1:]
		c.size -= len(c.entries[oldest].text)
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
