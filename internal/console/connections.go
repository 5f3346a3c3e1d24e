package console

import (
	"net"
	"net/http"
	"sync"
)

// connections limits the connections of a Proxy. When there are too many, it closes the one that has waited longest for a request: anybody
// on the machine can open connections and send half of a request, and must not keep the person who uses the page out. It is a net.Listener.
type connections struct {
	net.Listener
	most int

	mu      sync.Mutex // guards what follows
	open    int
	waiting []*connection // those without a complete request, the one that has waited longest first
}

// connection is a connection that is counted until it is closed.
type connection struct {
	net.Conn
	all    *connections
	closed sync.Once
}

// Accept implements net.Listener.
func (all *connections) Accept() (net.Conn, error) {
	conn, err := all.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, all: all}
	if oldest := all.add(c); oldest != nil {
		_ = oldest.Close() // it may have just been closed
	}
	return c, nil
}

// add adds a connection, and returns the one to close for it, nil if there is room. That may be the new one.
func (all *connections) add(c *connection) (oldest *connection) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.open++
	all.waiting = append(all.waiting, c)
	if all.open > all.most {
		return all.waiting[0]
	}
	return nil
}

// note is the function ConnState of an http.Server.
func (all *connections) note(conn net.Conn, state http.ConnState) {
	c, ok := conn.(*connection)
	if !ok {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.remove(c)
	if state == http.StateNew || state == http.StateIdle {
		all.waiting = append(all.waiting, c)
	}
}

// remove removes a connection from those that wait. The caller holds the lock.
func (all *connections) remove(c *connection) {
	for i, w := range all.waiting {
		if w == c {
			all.waiting = append(all.waiting[:i], all.waiting[i+1:]...)
			return
		}
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.closed.Do(func() {
		c.all.mu.Lock()
		defer c.all.mu.Unlock()
		c.all.open--
		c.all.remove(c)
	})
	return c.Conn.Close()
}
