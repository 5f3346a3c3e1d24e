package console

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// connections limits the connections of a Proxy. When there are too many, it closes the one that has waited longest for a request: anybody
// on the machine can open connections and send half of a request, and must not keep the person who uses the page out. A request is complete
// when its body has been read to the end. It is a net.Listener; the http.Server needs its serve, its note and its connContext.
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
	if !ok || state == http.StateActive {
		return // serve knows whether the request is complete
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.remove(c)
	if state == http.StateNew || state == http.StateIdle {
		all.waiting = append(all.waiting, c)
	}
}

type connectionKey struct{}

// connContext is the function ConnContext of an http.Server.
func (all *connections) connContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

// serve returns the handler of an http.Server. A connection stops to wait at the end of the body of its request, which has to come within
// requestBodyTime: also where next does not read it, because net/http then reads on for the next request.
func (all *connections) serve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(connectionKey{}).(*connection)
		if r.Body == nil || r.Body == http.NoBody {
			all.complete(c)
			next.ServeHTTP(w, r)
			return
		}
		control := http.NewResponseController(w)
		if err := control.SetReadDeadline(time.Now().Add(requestBodyTime)); err != nil {
			return // the connection is closed
		}
		r = r.WithContext(r.Context()) // net/http looks at the body of its own request, and discards from one of another type
		r.Body = &awaitedBody{r.Body, func() {
			_ = control.SetReadDeadline(time.Time{}) // fails if the connection is closed
			all.complete(c)
		}}
		next.ServeHTTP(w, r)
	})
}

// complete notes that a connection has a complete request.
func (all *connections) complete(c *connection) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.remove(c)
}

// awaitedBody is the body of a request that calls ended at its end.
type awaitedBody struct {
	io.ReadCloser
	ended func()
}

func (b *awaitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.ended()
	}
	return n, err
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
