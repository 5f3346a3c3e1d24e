// Package listener has the address at which a server is reached: a socket, or connections in memory.
package listener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/keelson-dev/keelson/config"
)

// Listener is the address at which a server is reached.
type Listener struct {
	net.Listener
	pipes   *pipes // nil: Listener is a socket
	serving *config.Serving
	// Advertised is the address for clients on other machines.
	Advertised net.IP
}

// Listen opens the listening socket, or makes pipes for a server without one. Connections wait until they are accepted. It logs a
// warning if the socket is not bound to the address that the server advertises.
func Listen(ctx context.Context, c *config.Serving, plane *config.ControlPlane, log *slog.Logger) (l *Listener, err error) {
	l = &Listener{serving: c}
	if c.InProcess {
		l.pipes = newPipes()
		l.Listener = l.pipes
	} else if l.Listener, err = openSocket(ctx, c); err != nil {
		return nil, err
	}
	if l.Advertised, err = advertised(plane, c.Address); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if bound := net.ParseIP(c.Address); !reaches(bound, l.Advertised) {
		log.Warn("the server does not listen on the address that it advertises to the cluster; unless something forwards "+
			"connections, pods and nodes cannot reach it. See --advertise-address and --bind-address",
			"advertised", l.Advertised, "bound", bound)
	}
	return l, nil
}

func openSocket(ctx context.Context, c *config.Serving) (net.Listener, error) {
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
	return l, nil
}

// Port returns the port of the socket, which the system chose if the configuration has port 0.
func (l *Listener) Port() int { return l.Addr().(*net.TCPAddr).Port }

// HostPort returns the host and port for clients on this machine.
func (l *Listener) HostPort() string {
	ip := l.Addr().(*net.TCPAddr).IP
	if ip.IsUnspecified() {
		ip = net.IPv4(127, 0, 0, 1)
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(l.Port()))
}

// URL returns the URL for clients on this machine.
func (l *Listener) URL() string {
	if l.pipes != nil {
		return inProcessURL
	}
	return "https://" + l.HostPort()
}

// AdvertisedHostPort returns the host and port for clients on other machines, which discovery documents name.
func (l *Listener) AdvertisedHostPort() string {
	host := l.serving.ExternalHostname
	if host == "" {
		host = l.Advertised.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(l.Port()))
}

// RemoteURL returns the URL for clients on other machines. It is empty if it would be the same as URL, or if there
// are no such clients: the server listens on a loopback address and no host name is configured.
func (l *Listener) RemoteURL() string {
	remote := "https://" + l.AdvertisedHostPort()
	if l.pipes != nil || l.serving.ExternalHostname == "" && net.ParseIP(l.serving.Address).IsLoopback() || remote == l.URL() {
		return ""
	}
	return remote
}

// InProcess reports whether connections are in memory, and not encrypted.
func (l *Listener) InProcess() bool { return l.pipes != nil }

// Dial returns a new connection in memory. It fails if the server has a socket, and after Close.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	if l.pipes == nil {
		return nil, errors.New("the server has a socket")
	}
	return l.pipes.dial(ctx)
}

// Close closes the socket. It may be called again, and with a nil Listener.
func (l *Listener) Close() error {
	if l == nil {
		return nil
	}
	if err := l.Listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
