package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
)

// listener is where the server is reached.
type listener struct{ net.Listener }

// listen takes an address. Connections wait until the server serves.
func listen(ctx context.Context, address string, port int) (*listener, error) {
	address = net.JoinHostPort(address, strconv.Itoa(port))
	var lc net.ListenConfig
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
		return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	return &listener{l}, nil
}

// port is the one that was taken, which the configuration may have left open.
func (l *listener) port() int { return l.Addr().(*net.TCPAddr).Port }

// hostPort is how a client on this machine reaches the listener.
func (l *listener) hostPort() string {
	ip := l.Addr().(*net.TCPAddr).IP
	if ip.IsUnspecified() {
		ip = net.IPv4(127, 0, 0, 1)
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(l.port()))
}

// url is the same as a URL.
func (l *listener) url() string { return "https://" + l.hostPort() }

// close takes no more connections. It may be called again, and with nil.
func (l *listener) close() error {
	if l == nil {
		return nil
	}
	if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
