package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/keelson-dev/keelson/config"
)

// listener is the address at which the server is reached, or the pipes of one without an address.
type listener struct {
	net.Listener
	pipes      *pipes // nil: Listener is a socket
	advertised net.IP // where clients on other machines reach the server
}

// listen opens the listening socket. Connections wait until the server serves.
func listen(ctx context.Context, c *config.Serving) (*listener, error) {
	if c.InProcess {
		p := newPipes()
		return &listener{Listener: p, pipes: p}, nil
	}
	address := net.JoinHostPort(c.Address, strconv.Itoa(c.Port))
	lc := net.ListenConfig{Control: socketControl(c)}
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		var sys *os.SyscallError
		if errors.As(err, &sys) {
			err = sys.Err
		}
		err = fmt.Errorf("cannot listen on %s: %w", address, err)
		if errors.Is(err, syscall.EADDRINUSE) {
			err = config.Errorf("%w; stop the process that listens there, or choose another port with {Serving.Port}", err)
		}
		return nil, err
	}
	return &listener{Listener: l}, nil
}

// port returns the port of the socket, which the system chose if the configuration has port 0.
func (l *listener) port() int { return l.Addr().(*net.TCPAddr).Port }

// hostPort returns the address for clients on this machine.
func (l *listener) hostPort() string {
	ip := l.Addr().(*net.TCPAddr).IP
	if ip.IsUnspecified() {
		ip = net.IPv4(127, 0, 0, 1)
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(l.port()))
}

// url returns the URL for clients on this machine.
func (l *listener) url() string {
	if l.pipes != nil {
		return inProcessURL
	}
	return "https://" + l.hostPort()
}

// close closes the socket. It may be called again, and with a nil listener.
func (l *listener) close() error {
	if l == nil {
		return nil
	}
	if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
