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

// A proxy opens connections for the server.
type proxy interface {
	// reach connects to the proxy itself, within ctx. The function that it returns
	// is called once, to connect through it to an address, and ends the connection to
	// the proxy if that fails.
	reach(ctx context.Context) (through func(ctx context.Context, address string) (net.Conn, error), err error)
}

// connect is a proxy that is asked by the method CONNECT (RFC 9110, 9.3.6).
type connect struct {
	name string // for errors
	dial func(context.Context) (net.Conn, error)
}

func (c connect) reach(ctx context.Context) (func(context.Context, string) (net.Conn, error), error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		if err := c.ask(ctx, conn, address); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	}, nil
}

// ask returns when the proxy is connected to the address.
func (c connect) ask(ctx context.Context, conn net.Conn, address string) error {
	// Reading and writing end with ctx.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, "127.0.0.1"); err != nil {
		return fmt.Errorf("writing CONNECT to %s via proxy %s failed: %w", address, c.name, err)
	}
	// What a proxy may say before it is connected is bounded.
	reader := bufio.NewReader(io.LimitReader(conn, http.DefaultMaxHeaderBytes))
	answer, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	switch {
	case err != nil:
		return fmt.Errorf("reading HTTP response from CONNECT to %s via proxy %s failed: %w", address, c.name, err)
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("proxy error from %s while dialing %s, code %d: %s",
			c.name, address, answer.StatusCode, answer.Status)
	case reader.Buffered() > 0:
		// The server speaks first on each of its connections: nothing can be there yet.
		return fmt.Errorf("unexpected %d bytes of buffered data from CONNECT proxy %q", reader.Buffered(), c.name)
	case !stop():
		return ctx.Err() // the connection has a deadline that is over
	}
	return nil
}

// tunnel is a Konnectivity server on a socket of this machine.
type tunnel struct{ socket string }

func (t tunnel) reach(ctx context.Context) (func(context.Context, string) (net.Conn, error), error) {
	// The tunnel outlives the dialing: it ends with its one connection.
	through, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, context.WithoutCancel(ctx),
		"passthrough:///"+t.socket,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", t.socket)
		}),
		grpc.WithAuthority("localhost"),
		grpc.WithBlock(), grpc.WithReturnConnectionError(), // the client dials in the old way
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket of this machine
	)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		return through.DialContext(ctx, "tcp", address)
	}, nil
}
