package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/tracing"
)

// A Dial opens a connection to an address ("host:port"). The network is "tcp".
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

const (
	dialTimeout      = 30 * time.Second
	keepAlive        = 30 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 90 * time.Second
	pingAfter        = 30 * time.Second
	pingTimeout      = 15 * time.Second
	maxIdle          = 100
	maxIdleOfHost    = 25
	bufferSize       = 32 << 10
)

// TransportOptions configure a Transport.
type TransportOptions struct {
	// Dial opens connections; nil opens them directly.
	Dial Dial
	// TLS is the configuration for https. It must not be changed afterwards.
	TLS *tls.Config
	// HTTP1 never uses HTTP/2.
	HTTP1 bool
	// Observe, unless it is nil, is called with the response to each request, or with the error.
	Observe func(*http.Response, error)
	// Pinned refuses requests whose Target has no Addresses, so that a host is never resolved again.
	Pinned bool
}

// A Transport connects to servers. It keeps idle connections for later requests, so all connections of one
// Transport must be interchangeable. Callers need one Transport for each set of credentials and each way to find
// addresses.
type Transport struct {
	options TransportOptions
	http    *http.Transport
	buffers *buffers
}

// NewTransport returns a Transport.
func NewTransport(o TransportOptions) *Transport {
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	}
	if o.TLS == nil {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	t := &Transport{options: o, buffers: &buffers{}}
	t.http = &http.Transport{
		DialContext: t.dial, TLSClientConfig: o.TLS.Clone(), TLSHandshakeTimeout: handshakeTimeout,
		ForceAttemptHTTP2: !o.HTTP1,
		MaxIdleConns:      maxIdle, MaxIdleConnsPerHost: maxIdleOfHost, IdleConnTimeout: idleTimeout,
		// The client unpacks what the server has packed. Otherwise responses would change on their way.
		DisableCompression: true,
		ReadBufferSize:     bufferSize, WriteBufferSize: bufferSize,
		MaxResponseHeaderBytes: maxHeader,
		// Pings detect a broken HTTP/2 connection.
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	return t
}

// RoundTrip implements http.RoundTripper. It does not follow redirects. A server that switches to another protocol is
// refused: requests for other protocols are sent by Connect.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := tracing.Transport(t.http).RoundTrip(r)
	if err == nil && response.StatusCode < http.StatusOK {
		// net/http reads a status below 100 but refuses to send it. The body of a 101 is the connection: reading it ends
		// only when the server closes it, also if the request has ended.
		_ = response.Body.Close() // the body is not used
		err = fmt.Errorf("invalid status code %03d", response.StatusCode)
		if response.StatusCode == http.StatusSwitchingProtocols {
			err = &switchedError{response.Header.Get("Upgrade")}
		}
		response = nil
	}
	if t.options.Observe != nil {
		t.options.Observe(response, err)
	}
	return response, err
}

// RoundTripTo is RoundTrip over a connection to address, as if it were the only one in Target.Addresses.
func (t *Transport) RoundTripTo(r *http.Request, address string) (*http.Response, error) {
	return t.RoundTrip(r.WithContext(withAddresses(r.Context(), []string{address})))
}

// CloseIdle closes idle connections.
func (t *Transport) CloseIdle() { t.http.CloseIdleConnections() }

// dial opens a connection to address, or to the first of the addresses in ctx that can be reached.
func (t *Transport) dial(ctx context.Context, network, address string) (net.Conn, error) {
	addresses, _ := ctx.Value(addressKey{}).([]string)
	if len(addresses) == 0 {
		if t.options.Pinned {
			return nil, fmt.Errorf("the address of %s was not checked", address)
		}
		return t.options.Dial(ctx, network, address)
	}
	var errs []error
	for _, a := range addresses {
		conn, err := t.options.Dial(ctx, network, a)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// Connect opens a new connection for HTTP/1.1 to the host of u. addresses are as in Target.
func (t *Transport) Connect(ctx context.Context, u *url.URL, addresses []string) (net.Conn, error) {
	ctx = withAddresses(ctx, addresses)
	switch u.Scheme {
	case "http":
		return t.dial(ctx, "tcp", withPort(u, "80"))
	case "https":
	default:
		return nil, fmt.Errorf("unknown scheme: %s", u.Scheme)
	}
	conn, err := t.dial(ctx, "tcp", withPort(u, "443"))
	if err != nil {
		return nil, err
	}
	config := t.options.TLS.Clone()
	config.NextProtos = []string{"http/1.1"}
	config.ServerName = cmp.Or(config.ServerName, u.Hostname())
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the error of the handshake is more useful
		return nil, err
	}
	return secure, nil
}

// withPort returns the host and port of u.
func withPort(u *url.URL, port string) string {
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
}

// buffers are buffers for copying, which are used again. It implements httputil.BufferPool.
type buffers struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, bufferSize)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(p []byte) { b.pool.Put(&p) }

// smallBuffers are buffers for responses that last long. It implements httputil.BufferPool.
type smallBuffers struct{}

const smallBufferSize = 2 << 10

// Get implements httputil.BufferPool.
func (smallBuffers) Get() []byte { return make([]byte, smallBufferSize) }

// Put implements httputil.BufferPool.
func (smallBuffers) Put([]byte) {}
