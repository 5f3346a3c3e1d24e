package console

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// connections limits the connections of a Proxy. Above the limit, it closes the one that has waited longest for a
// complete request. Anybody on the machine can open connections and send half of a request, and must not block the
// user of the page. A request is complete when its body was read to the end. connections is a net.Listener. Its
// http.Server must use its serve, note and connContext.
type connections struct {
	net.Listener
	most int

	mu      sync.Mutex // guards the fields below
	open    int
	waiting []*connection // connections without a complete request, the longest waiting one first
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

// add adds a connection. If there is no room, it returns the connection to close, which may be c itself.
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

// note implements http.Server.ConnState.
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

// connContext implements http.Server.ConnContext.
func (all *connections) connContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

// serve returns the handler for an http.Server. A connection no longer waits after the end of its request's body,
// which must arrive within requestBodyTime. The limit also holds if next does not read the body, because net/http
// then reads it.
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
		r = r.WithContext(r.Context()) // a copy: net/http must find its own type of body in its own request
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

// awaitedBody is the body of a request. It calls ended when it was read to the end.
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

// remove removes a connection from waiting. The caller holds mu.
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
