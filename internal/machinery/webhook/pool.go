package webhook

import (
	"cmp"
	"container/list"
	"crypto/sha256"
	"encoding/json"
	"sync"
)

// A Pool returns the same Client for the same Target, so that callers share its connections and certificate authorities:
// often thousands of CustomResourceDefinitions name one webhook. A client that the pool removes can still be used by
// callers that have it.
type Pool struct {
	limit int // of clients

	mu      sync.Mutex // guards the fields below; not held while a client is used
	options Options
	clients map[[sha256.Size]byte]*list.Element // by the hash of the target
	recent  list.List                           // of *pooled, the most recently used first
}

type pooled struct {
	key    [sha256.Size]byte
	client *Client
}

// NewPool returns a pool that keeps the limit most recently used clients; 1,000 if limit is zero.
func NewPool(o Options, limit int) *Pool {
	return &Pool{options: o, limit: cmp.Or(limit, 1000), clients: map[[sha256.Size]byte]*list.Element{}}
}

// Client returns the client for a target. It fails as New does.
func (p *Pool) Client(t Target) (*Client, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(text)
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.clients[key]; e != nil {
		p.recent.MoveToFront(e)
		return e.Value.(*pooled).client, nil
	}
	c, err := New(t, p.options)
	if err != nil {
		return nil, err
	}
	p.clients[key] = p.recent.PushFront(&pooled{key, c})
	if p.recent.Len() > p.limit {
		oldest := p.recent.Remove(p.recent.Back()).(*pooled)
		delete(p.clients, oldest.key)
		oldest.client.CloseIdle()
	}
	return c, nil
}

// SetCredentials changes the credentials of clients that are returned from now on. These open new connections.
func (p *Pool) SetCredentials(of func(address string) (Credentials, error)) {
	p.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.options.Credentials = of
	p.recent.Init()
	clear(p.clients)
}

// Close closes idle connections. The pool can still be used.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.clients {
		e.Value.(*pooled).client.CloseIdle()
	}
}
