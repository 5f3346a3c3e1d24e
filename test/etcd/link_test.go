package etcd

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// state is how a link treats connections.
type state int

const (
	open         state = iota
	cutOff             // connections are closed, and new ones are refused
	requestsHeld       // nothing is sent to the server until the state changes
	answersHeld        // nothing from the server is passed on until the state changes
	bothHeld
	slow // each piece of data is delayed by up to slowness
)

// faulty are all states except open.
var faulty = []state{cutOff, requestsHeld, answersHeld, bothHeld, slow}

const slowness = 30 * time.Millisecond

func (s state) String() string {
	return [...]string{"open", "cut off", "requests held up", "answers held up", "all held up", "slow"}[s]
}

// holds reports whether data in a direction is kept back.
func (s state) holds(answers bool) bool {
	return s == bothHeld || answers && s == answersHeld || !answers && s == requestsHeld
}

// link is a TCP proxy in front of a server whose connections can be disturbed.
type link struct {
	listener net.Listener
	target   string

	mu      sync.Mutex // guards the fields below
	changed *sync.Cond
	state   state
	ended   bool
	pairs   map[*pair]bool
	running sync.WaitGroup
}

// pair is one connection through a link.
type pair struct {
	client, server net.Conn
	closed         bool // guarded by link.mu
}

func newLink(t testing.TB, target string) *link {
	t.Helper()
	l := &link{target: target, pairs: map[*pair]bool{}}
	l.changed = sync.NewCond(&l.mu)
	var err error
	if l.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	l.running.Go(l.accept)
	t.Cleanup(func() {
		l.mu.Lock()
		l.ended = true
		l.mu.Unlock()
		_ = l.listener.Close() // ends accept
		l.be(cutOff)
		l.running.Wait()
	})
	return l
}

func (l *link) url() string { return fmt.Sprintf("http://%s", l.listener.Addr()) }

// be changes the state.
func (l *link) be(s state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = s
	if s == cutOff {
		for p := range l.pairs {
			l.drop(p)
		}
	}
	l.changed.Broadcast()
}

// drop closes a connection. The caller must hold mu.
func (l *link) drop(p *pair) {
	p.closed = true
	_, _ = p.client.Close(), p.server.Close() // data on the way is lost
	delete(l.pairs, p)
	l.changed.Broadcast()
}

func (l *link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = client.Close() // the server is not running
			continue
		}
		p := &pair{client: client, server: server}
		l.mu.Lock()
		if l.state == cutOff || l.ended {
			p.closed = true
			_, _ = client.Close(), server.Close() // the client sees a server that is not running
		} else {
			l.pairs[p] = true
			l.running.Go(func() { l.carry(p, server, client, false) })
			l.running.Go(func() { l.carry(p, client, server, true) })
		}
		l.mu.Unlock()
	}
}

// carry copies data from one end to the other.
func (l *link) carry(p *pair, to io.Writer, from io.Reader, answers bool) {
	b := make([]byte, 16<<10)
	for {
		n, err := from.Read(b)
		if n > 0 && l.pass(p, answers) {
			_, err = to.Write(b[:n])
		}
		if err != nil {
			l.mu.Lock()
			l.drop(p)
			l.mu.Unlock()
			return
		}
	}
}

// pass waits until a piece of data may be sent on. It returns false if the connection was closed.
func (l *link) pass(p *pair, answers bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !p.closed && l.state.holds(answers) {
		l.changed.Wait()
	}
	if !p.closed && l.state == slow {
		l.mu.Unlock()
		time.Sleep(slowness)
		l.mu.Lock()
	}
	return !p.closed
}
