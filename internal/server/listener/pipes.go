package listener

import (
	"context"
	"net"
	"sync"
	"syscall"

	"github.com/keelson-dev/keelson/internal/server/memconn"
)

// inProcessURL is the URL of a server without a socket. Its name never resolves (RFC 2606), so that a client that does
// not use Server.Dial reaches no other server by mistake.
const inProcessURL = "http://keelson.invalid"

// inProcessPort is the port in objects that describe a server without a socket, such as the Service kubernetes.
const inProcessPort = 6443

// pipes is a net.Listener whose connections are in memory. They are not encrypted, because only this process can
// use them.
type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})} }

// dial returns the client's end of a new connection. After Close it fails with syscall.ECONNREFUSED, as for a socket that is
// closed: client-go would repeat a request for ten seconds after net.ErrClosed.
func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	client, server := memconn.New(p.Addr())
	select {
	case p.dialed <- server:
		return client, nil
	case <-p.closed:
		return nil, &net.OpError{Op: "dial", Net: "memory", Addr: p.Addr(), Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialed:
		return c, nil
	case <-p.closed:
		return nil, &net.OpError{Op: "accept", Net: "memory", Addr: p.Addr(), Err: net.ErrClosed}
	}
}

// Close implements net.Listener. It may be called again.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: inProcessPort} }
