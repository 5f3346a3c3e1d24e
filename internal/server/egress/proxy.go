package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
)

// A proxy opens connections to other servers.
type proxy interface {
	// connect connects to the proxy itself. The returned function connects through the proxy to an address. It must be
	// called once, and closes the connection to the proxy if it fails.
	connect(ctx context.Context) (through func(ctx context.Context, address string) (net.Conn, error), err error)
}

// httpConnectProxy is an HTTP proxy with the method CONNECT (RFC 9110, section 9.3.6).
type httpConnectProxy struct {
	name string // for errors
	dial func(context.Context) (net.Conn, error)
}

func (c httpConnectProxy) connect(ctx context.Context) (func(context.Context, string) (net.Conn, error), error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		if err := c.handshake(ctx, conn, address); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	}, nil
}

// handshake sends the CONNECT request, and returns when the proxy is connected to the address.
func (c httpConnectProxy) handshake(ctx context.Context, conn net.Conn, address string) error {
	// The deadline ends reads and writes when ctx ends.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, "127.0.0.1"); err != nil {
		return fmt.Errorf("writing CONNECT to %s via proxy %s failed: %w", address, c.name, err)
	}
	// The size of the proxy's response is bounded.
	reader := bufio.NewReader(io.LimitReader(conn, http.DefaultMaxHeaderBytes))
	answer, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	switch {
	case err != nil:
		return fmt.Errorf("reading HTTP response from CONNECT to %s via proxy %s failed: %w", address, c.name, err)
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("proxy error from %s while dialing %s, code %d: %s",
			c.name, address, answer.StatusCode, answer.Status)
	case reader.Buffered() > 0:
		// The server sends first on each of its connections, so the destination cannot have sent anything yet.
		return fmt.Errorf("unexpected %d bytes of buffered data from CONNECT proxy %q", reader.Buffered(), c.name)
	case !stop():
		return ctx.Err() // the deadline of the connection has already passed
	}
	return nil
}

// konnectivityProxy is a Konnectivity server on a Unix socket.
type konnectivityProxy struct{ socket string }

func (p konnectivityProxy) connect(ctx context.Context) (func(context.Context, string) (net.Conn, error), error) {
	// The context of the tunnel must not end with ctx: the tunnel is in use until its one connection is closed.
	through, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, context.WithoutCancel(ctx),
		"passthrough:///"+p.socket,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", p.socket)
		}),
		grpc.WithAuthority("localhost"),
		grpc.WithBlock(), grpc.WithReturnConnectionError(), // the client dials with this older kind of API
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket of this machine
	)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		return through.DialContext(ctx, "tcp", address)
	}, nil
}
