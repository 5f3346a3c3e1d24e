package webhook

import (
	"container/list"
	"crypto/sha256"
	"encoding/json"
	"sync"
)

// A Pool keeps clients, so that those who call the same webhook share its
// connections and its trusted authorities: thousands of definitions often name one
// webhook. A client that is no longer kept stays good for those who have it.
type Pool struct {
	most int

	mu      sync.Mutex // guards what follows; not held while a client is used
	options Options
	clients map[[sha256.Size]byte]*list.Element
	recent  list.List // of *pooled; the most recently asked for first
}

type pooled struct {
	key    [sha256.Size]byte
	client *Client
}

// NewPool returns a pool that keeps at most this many clients; 1,000 if zero.
func NewPool(o Options, most int) *Pool {
	if most == 0 {
		most = 1000
	}
	return &Pool{options: o, most: most, clients: map[[sha256.Size]byte]*list.Element{}}
}

// Client returns the client of a target.
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
	if p.recent.Len() > p.most {
		oldest := p.recent.Remove(p.recent.Back()).(*pooled)
		delete(p.clients, oldest.key)
		oldest.client.CloseIdle()
	}
	return c, nil
}

// SetCredentials has the clients that are asked for from now on show other credentials. They open new connections.
func (p *Pool) SetCredentials(of func(address string) (Credentials, error)) {
	p.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.options.Credentials = of
	p.recent.Init()
	clear(p.clients)
}

// Close closes the connections that nobody uses. The pool stays good.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.clients {
		e.Value.(*pooled).client.CloseIdle()
	}
}
