package bucket

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

const (
	// stalled is how long a connection may wait without having sent or received a byte. It bounds requests with large bodies, of which
	// nobody knows how long they take.
	stalled = 30 * time.Second
	// unused is when a connection that no request uses is closed. It is shorter than stalled, so such a connection never fails.
	unused = 20 * time.Second
	// dialLimit bounds the making of a connection.
	dialLimit = 10 * time.Second
	// credentialsLimit is how long credentials that never expire are used, before they are looked for again.
	credentialsLimit = 5 * time.Minute
)

// dialer makes connections.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// newHTTPClient returns an HTTP client, and what closes its connections.
func newHTTPClient(caFile string, dial dialer) (*awshttp.BuildableClient, interface{ CloseIdleConnections() }, error) {
	pool, err := certificates(caFile)
	if err != nil {
		return nil, nil, err
	}
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialLimit}).DialContext
	}
	connections := &connections{dial: dial, open: map[*conn]bool{}}
	return awshttp.NewBuildableClient().WithReadTimeout(0).WithTransportOptions(func(t *http.Transport) {
		t.DialContext = connections.Dial
		t.TLSClientConfig.RootCAs = pool
		t.TLSHandshakeTimeout = dialLimit
		t.IdleConnTimeout = unused
		t.Protocols = new(http.Protocols)
		t.Protocols.SetHTTP1(true) // a connection has one request at a time, so its progress is the progress of the request
	}), connections, nil
}

// certificates returns those of the system and of a file; nil, which is those of the system, if there is no file.
func certificates(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the certificates for S3: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("the file %s has no certificates in PEM", file)
	}
	return pool, nil
}

// connections are the open connections. The SDK makes several http.Transports out of one, to which it gives no access, so
// they are closed here.
type connections struct {
	dial dialer

	mu   sync.Mutex // guards open
	open map[*conn]bool
}

// Dial makes a connection.
func (c *connections) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	made := &conn{raw, c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[made] = true
	return made, nil
}

// CloseIdleConnections closes all connections, because no request uses them any more.
func (c *connections) CloseIdleConnections() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for x := range c.open {
		_ = x.Conn.Close()
	}
	clear(c.open)
}

// conn is a connection that fails if it makes no progress.
type conn struct {
	net.Conn
	all *connections
}

// Read and Write move the deadlines of both directions, because a large request makes progress although no answer comes yet.
func (c *conn) Read(b []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(stalled)) // it fails if the connection is closed, as what follows does
	return c.Conn.Read(b)
}

func (c *conn) Write(b []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(stalled)) // it fails if the connection is closed, as what follows does
	n, err := c.Conn.Write(b)
	if n > 0 {
		_ = c.SetDeadline(time.Now().Add(stalled))
	}
	return n, err
}

func (c *conn) Close() error {
	c.all.mu.Lock()
	delete(c.all.open, c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// newCredentials returns what finds the credentials as load does. Those that do not expire are looked for again after credentialsLimit,
// because the file that has them may have changed.
func newCredentials(load func(context.Context) (aws.Config, error)) aws.CredentialsProvider {
	return aws.NewCredentialsCache(&credentials{load: load})
}

// credentials is the aws.CredentialsProvider of newCredentials. The cache calls it from one goroutine at a time.
type credentials struct {
	load func(context.Context) (aws.Config, error)
	last aws.Credentials // the last ones, if they do not expire
}

// Retrieve implements aws.CredentialsProvider.
func (c *credentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	found, err := c.find(ctx)
	switch {
	case err != nil && c.last.HasKeys():
		found = c.last // the file may just be written
	case err != nil:
		return found, &credentialsError{err}
	case found.CanExpire:
		return found, nil
	}
	c.last = found
	found.CanExpire, found.Expires = true, time.Now().Add(credentialsLimit)
	return found, nil
}

func (c *credentials) find(ctx context.Context) (found aws.Credentials, err error) {
	settings, err := c.load(ctx)
	if err != nil {
		return found, err
	}
	if found, err = settings.Credentials.Retrieve(ctx); err == nil && !found.HasKeys() {
		err = errors.New("they are empty")
	}
	return found, err
}
