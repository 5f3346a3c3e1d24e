package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"time"

	"google.golang.org/grpc"

	"github.com/keelson-dev/keelson/storage"
	"github.com/keelson-dev/keelson/tracing"
)

// DefaultPrefix is the default prefix of Keelson's keys.
const DefaultPrefix = "/registry"

// Options select the cluster and configure its use. The zero value of every field but Endpoints selects a default.
type Options struct {
	// Endpoints are the client URLs of the members. Requests go to all of them in turn.
	Endpoints []string
	// CAFile contains the certificate authorities of the members' certificates. CertFile and KeyFile are the client
	// certificate and its key. All are PEM files. The client certificate is read again for each connection.
	CAFile, CertFile, KeyFile string
	// Prefix replaces /registry at the beginning of keys in etcd; "" leaves keys unchanged. With a prefix, keys outside
	// /registry are refused.
	Prefix string

	// CompactionInterval is how often this process tries to compact, and the least history that is kept; 0 leaves
	// compaction to other processes.
	CompactionInterval time.Duration
	// LeaseReuse is the longest time during which a lease is given to further keys; 0 means a minute.
	LeaseReuse time.Duration
	// PollInterval is how often members are asked for their size and version; 0 means 30 seconds, a negative value only
	// once.
	PollInterval time.Duration
	// DialTimeout limits the wait for the first answer of the cluster; 0 means 20 seconds.
	DialTimeout time.Duration
	// Dial opens connections to members, as (*net.Dialer).DialContext does; nil connects directly.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Recorder is told of calls and leases; nil means that nothing is recorded.
	Recorder Recorder
	// Logger receives messages for the operator; nil means slog.Default().
	Logger *slog.Logger
	// OnFailure is called once when the store has failed for good (storage.ErrFailed) and the process must be restarted.
	// It must not call the store and must not block.
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
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Prefix == DefaultPrefix {
		o.Prefix = ""
	}
	return o
}

// tls returns the TLS configuration of connections. nil means that the schemes of the endpoints decide.
func (o Options) tls() (*tls.Config, error) {
	if o.CAFile == "" && o.CertFile == "" && o.KeyFile == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificates", o.CAFile)
		}
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return nil, errors.New("a client certificate needs its file and that of its key")
	}
	if o.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
			return &pair, err
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return config, nil
}

// leaseFull records a lease that is given to no more keys.
func (o Options) leaseFull(keys int) {
	if o.Recorder != nil {
		o.Recorder.LeaseFull(keys)
	}
}

// dial returns the dial options of connections to members.
func (o Options) dial() []grpc.DialOption {
	options := []grpc.DialOption{grpc.WithChainUnaryInterceptor(tracing.UnaryClient)}
	if o.Recorder != nil {
		options = append(options, grpc.WithChainUnaryInterceptor(recordUnary(o.Recorder)),
			grpc.WithChainStreamInterceptor(recordStreams(o.Recorder)))
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

// wire returns the range in the form of etcd's requests: as key, a zero byte means the smallest key, and as end it
// means no end.
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
