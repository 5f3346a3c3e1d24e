package takeover

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Proxy is between one server and the bucket of S3, and makes faults.
type Proxy struct {
	URL  string
	next http.Handler

	mode    atomic.Pointer[mode]
	pending sync.WaitGroup // requests that are delayed or in the service
}

// mode is what happens to requests. Exactly one of the functions or fields is used.
type mode struct {
	name  string
	ended chan struct{} // closed when the mode ends
	// handle decides about one request. forward sends it to the service, also if the client has given up, and returns the answer.
	handle func(w http.ResponseWriter, r *http.Request, m *mode, forward func() *httptest.ResponseRecorder)
	// refuses closes connections at once.
	refuses bool
}

// NewProxy starts a proxy, which ends with the test.
func NewProxy(t testing.TB, next http.Handler) *Proxy {
	t.Helper()
	p := &Proxy{next: next}
	p.mode.Store(healthy())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.URL = "http://" + l.Addr().String()
	server := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(&refusing{l, p}) }() // it ends with ErrServerClosed
	t.Cleanup(func() {
		p.Heal()
		_ = server.Close()
		p.pending.Wait()
	})
	return p
}

// refusing is a listener whose connections are reset at once while the mode of its proxy says so.
type refusing struct {
	net.Listener
	proxy *Proxy
}

func (l *refusing) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || !l.proxy.mode.Load().refuses {
			return c, err
		}
		reset(c)
	}
}

// reset closes a connection so that the other side gets an error.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // the connection is closed in any case
	}
	_ = c.Close()
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	p.pending.Add(1)
	defer p.pending.Done()
	m := p.mode.Load()
	m.handle(w, r, m, func() *httptest.ResponseRecorder {
		sent := r.Clone(context.WithoutCancel(r.Context()))
		sent.Body = io.NopCloser(bytes.NewReader(body))
		answer := httptest.NewRecorder()
		p.next.ServeHTTP(answer, sent)
		return answer
	})
}

// set begins a mode, and ends the one before.
func (p *Proxy) set(m *mode) {
	close(p.mode.Swap(m).ended)
}

// Heal ends all faults. Requests that were held are sent to the service, or dropped, soon afterwards.
func (p *Proxy) Heal() { p.set(healthy()) }

// settle waits until no request is on its way to the service. No server that uses the proxy runs.
func (p *Proxy) settle() { p.pending.Wait() }

func pass(w http.ResponseWriter, _ *http.Request, _ *mode, forward func() *httptest.ResponseRecorder) {
	answer := forward()
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the client may be gone
}

func cut() { panic(http.ErrAbortHandler) }

func newMode(name string, handle func(http.ResponseWriter, *http.Request, *mode, func() *httptest.ResponseRecorder)) *mode {
	return &mode{name: name, ended: make(chan struct{}), handle: handle}
}

func healthy() *mode { return newMode("healthy", pass) }

// refused resets every connection.
func refused() *mode {
	m := newMode("refused", func(http.ResponseWriter, *http.Request, *mode, func() *httptest.ResponseRecorder) { cut() })
	m.refuses = true
	return m
}

// hanging holds all requests until the fault ends. Then some of them take effect, and some of these are answered: a server that was not
// able to renew its lock finds its last segment written.
func hanging() *mode {
	return newMode("hanging", func(w http.ResponseWriter, r *http.Request, m *mode, forward func() *httptest.ResponseRecorder) {
		<-m.ended
		switch rand.IntN(4) {
		case 0:
			cut()
		case 1:
			forward()
			cut()
		}
		pass(w, r, m, forward)
	})
}

// slow delays requests and answers, some of them by seconds.
func slow() *mode {
	delay := func(m *mode) {
		most := 300 * time.Millisecond
		if rand.IntN(4) == 0 {
			most = 4 * time.Second
		}
		select {
		case <-time.After(rand.N(most)):
		case <-m.ended:
		}
	}
	return newMode("slow", func(w http.ResponseWriter, r *http.Request, m *mode, forward func() *httptest.ResponseRecorder) {
		delay(m)
		pass(w, r, m, func() *httptest.ResponseRecorder {
			answer := forward()
			delay(m)
			return answer
		})
	})
}

// failing answers with errors or cuts the connection, before or after the request took effect. Some requests succeed.
func failing() *mode {
	return newMode("failing", func(w http.ResponseWriter, r *http.Request, m *mode, forward func() *httptest.ResponseRecorder) {
		choice := rand.IntN(6)
		if choice < 2 {
			pass(w, r, m, forward)
			return
		}
		if choice < 4 {
			forward()
		}
		if choice%2 == 0 {
			cut()
		}
		status := http.StatusServiceUnavailable
		if rand.IntN(2) == 0 {
			status = http.StatusInternalServerError
		}
		w.WriteHeader(status)
		_, _ = io.Copy(w, strings.NewReader("<Error><Code>InternalError</Code></Error>")) // the client may be gone
	})
}
