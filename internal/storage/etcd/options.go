package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/keelson-dev/keelson/internal/storage"
)

// DefaultPrefix is the default prefix of Keelson's keys.
const DefaultPrefix = "/registry"

// Own has the clients of a member in this process, which call its functions. Close does not end the member.
type Own struct {
	Client *clientv3.Client
	Watch  pb.WatchClient
}

// Options select the cluster and configure its use. The zero value of every field but Endpoints and Own selects a default.
type Options struct {
	// Endpoints are the client URLs of the members. Requests go to all of them in turn.
	Endpoints []string
	// Own, unless it is nil, is used instead of connections to Endpoints.
	Own *Own
	// TLS returns the TLS configuration of a new connection: the authorities of the members' certificates, and the
	// client certificate. It is called for each connection. nil means that the schemes of the endpoints decide,
	// with the authorities of the system. The returned configuration must not be changed.
	TLS func() *tls.Config
	// Prefix replaces /registry at the beginning of keys in etcd; "" leaves keys unchanged. With a prefix, keys outside
	// /registry are refused.
	Prefix string

	// CompactionInterval is the interval in which this process tries to compact. Changes are kept for at least
	// this time. 0 leaves compaction to other processes.
	CompactionInterval time.Duration
	// LeaseReuse is the longest time during which a lease is given to further keys; 0 means a minute.
	LeaseReuse time.Duration
	// Records makes Commit write who has made a transaction, and when, for Follow.
	Records bool
	// Now returns the time that Records writes; nil means time.Now.
	Now func() time.Time
	// PollInterval is the interval in which the size and version of the members are requested; 0 means 30 seconds,
	// and a negative value means only once.
	PollInterval time.Duration
	// DialTimeout limits the wait for the first answer of the cluster; 0 means 20 seconds.
	DialTimeout time.Duration
	// Dial opens connections to members, as (*net.Dialer).DialContext does; nil connects directly.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Recorder records calls and leases for metrics; nil records nothing.
	Recorder Recorder
	// Logger receives messages for the operator; nil means slog.Default().
	Logger *slog.Logger
	// OnFailure is called once when the store has failed permanently (storage.ErrFailed) and the process must be
	// restarted. It must not call the store and must not block.
	OnFailure func(error)
}

// withDefaults returns o with defaults for zero fields.
func (o Options) withDefaults() Options {
	if o.PollInterval == 0 {
		o.PollInterval = 30 * time.Second
	}
	if o.LeaseReuse == 0 {
		o.LeaseReuse = time.Minute
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = 20 * time.Second
	}
	if o.Own != nil {
		o.Endpoints = []string{"the member in this process"}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Prefix == DefaultPrefix {
		o.Prefix = ""
	}
	return o
}

// leaseFull records a lease that is given to no more keys.
func (o Options) leaseFull(keys int) {
	if o.Recorder != nil {
		o.Recorder.LeaseFull(keys)
	}
}

// dial returns the dial options of connections to members.
func (o Options) dial() []grpc.DialOption {
	options := []grpc.DialOption{grpc.WithChainUnaryInterceptor(traced)}
	if o.Recorder != nil {
		options = append(options, grpc.WithChainUnaryInterceptor(recordUnary(o.Recorder)),
			grpc.WithChainStreamInterceptor(recordStreams(o.Recorder)))
	}
	// The client itself decides which endpoints use TLS. If only some endpoints use TLS, the configuration that
	// was read at the start is used.
	plain := func(endpoint string) bool { return strings.HasPrefix(endpoint, "http://") }
	if o.TLS != nil && !slices.ContainsFunc(o.Endpoints, plain) {
		options = append(options, grpc.WithTransportCredentials(
			&currentCredentials{TransportCredentials: credentials.NewTLS(o.TLS()), config: o.TLS}))
	}
	if o.Dial == nil {
		return options
	}
	return append(options, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		if u, err := url.Parse(address); err == nil && u.Host != "" {
			address = u.Host
		}
		return o.Dial(ctx, "tcp", address)
	}))
}

// currentCredentials are transport credentials that read the TLS configuration for each new connection.
type currentCredentials struct {
	credentials.TransportCredentials // with the configuration read at the start
	config                           func() *tls.Config
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *currentCredentials) ClientHandshake(
	ctx context.Context, authority string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(c.config()).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (c *currentCredentials) Clone() credentials.TransportCredentials {
	return &currentCredentials{TransportCredentials: c.TransportCredentials.Clone(), config: c.config}
}

// probeTime limits the time for which probe waits until a member accepts a connection.
const probeTime = 3 * time.Second

// probe connects to each endpoint. It returns the reasons why connections fail, or nil if all endpoints accept
// them.
func (o Options) probe(ctx context.Context) error {
	if o.Own != nil {
		return nil
	}
	errs := make([]error, len(o.Endpoints))
	var probes sync.WaitGroup
	for i, endpoint := range o.Endpoints {
		probes.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, probeTime)
			defer cancel()
			if err := o.probeEndpoint(ctx, endpoint); err != nil {
				errs[i] = fmt.Errorf("%s: %w", endpoint, err)
			}
		})
	}
	probes.Wait()
	return errors.Join(errs...)
}

// probeEndpoint connects to one endpoint.
func (o Options) probeEndpoint(ctx context.Context, endpoint string) error {
	scheme, address, found := strings.Cut(endpoint, "://")
	if !found {
		scheme, address = "", endpoint
	}
	if strings.HasPrefix(scheme, "unix") || strings.HasPrefix(address, "unix") {
		return nil
	}
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	var refused *os.SyscallError
	if errors.As(err, &refused) {
		return refused.Err // the outer error repeats the address
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case scheme == "http" || scheme == "" && o.TLS == nil:
		return nil
	case o.TLS != nil:
		config = o.TLS().Clone()
	}
	if config.ServerName == "" {
		if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
			return err
		}
	}
	config.NextProtos = []string{"h2"}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return err
	}
	// With TLS 1.3, a member sends the refusal of a client certificate after the handshake.
	if err := secure.SetReadDeadline(time.Now().Add(refusalTime)); err != nil {
		return err
	}
	var refusal *net.OpError
	if _, err := secure.Read(make([]byte, 1)); errors.As(err, &refusal) && refusal.Op == "remote error" {
		return err
	}
	return nil
}

// refusalTime is the time that probe waits for a member to refuse the client's certificate.
const refusalTime = 500 * time.Millisecond

// keys maps keys of storage.Store to keys in etcd and back.
type keys struct{ prefix string }

// span is a range of keys in etcd, from lo (inclusive) to hi (exclusive). hi "" means no upper bound.
type span struct{ lo, hi string }

var errOutsideRoot = errors.New("the key is not below " + DefaultPrefix)

// toEtcd returns the key in etcd. It fails with errOutsideRoot for a key outside /registry if there is a prefix.
func (k keys) toEtcd(key string) (string, error) {
	if k.prefix == "" {
		return key, nil
	}
	if len(key) < len(DefaultPrefix) || key[:len(DefaultPrefix)] != DefaultPrefix {
		return "", fmt.Errorf("%q: %w", key, errOutsideRoot)
	}
	return k.prefix + key[len(DefaultPrefix):], nil
}

// fromEtcd is the inverse of toEtcd.
func (k keys) fromEtcd(key []byte) string {
	if k.prefix == "" {
		return string(key)
	}
	return DefaultPrefix + string(key[len(k.prefix):])
}

// span maps a range of keys. The part outside /registry is left out if there is a prefix.
func (k keys) span(lo, hi string) span {
	if k.prefix == "" {
		return span{lo, hi}
	}
	r := span{lo, hi}.intersect(span{DefaultPrefix, storage.PrefixEnd(DefaultPrefix)})
	if r.empty() {
		return span{k.prefix, k.prefix}
	}
	mapped := span{k.prefix + r.lo[len(DefaultPrefix):], storage.PrefixEnd(k.prefix)}
	if r.hi != storage.PrefixEnd(DefaultPrefix) {
		mapped.hi = k.prefix + r.hi[len(DefaultPrefix):]
	}
	return mapped
}

// intersect returns the keys that are in both ranges.
func (s span) intersect(o span) span {
	s.lo = max(s.lo, o.lo)
	if s.hi == "" || o.hi != "" && o.hi < s.hi {
		s.hi = o.hi
	}
	return s
}

func (s span) empty() bool { return s.hi != "" && s.lo >= s.hi }

// wire returns the range in the form of etcd's requests. A key with one zero byte means the smallest key, and an
// end with one zero byte means no end.
func (s span) wire() (key, end string) {
	key, end = s.lo, s.hi
	if key == "" {
		key = "\x00"
	}
	if end == "" {
		end = "\x00"
	}
	return key, end
}
