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
)

// DefaultPrefix is the default prefix of Keelson's keys.
const DefaultPrefix = "/registry"

// Options say which cluster to use and how. The zero value of each but Endpoints
// is a sensible default.
type Options struct {
	// Endpoints are the members' client URLs. Requests go to all of them in turn.
	Endpoints []string
	// CAFile has the authorities of the members' certificates, CertFile and
	// KeyFile the client's own certificate, all PEM. The pair is read again for
	// each connection.
	CAFile, CertFile, KeyFile string
	// Prefix takes the place of /registry at the beginning of keys in etcd; ""
	// leaves keys as they are. With a prefix, keys outside /registry are refused.
	Prefix string

	// CompactionInterval is how often this process offers to compact, and how much
	// history is kept at least; 0 leaves compaction to others.
	CompactionInterval time.Duration
	// LeaseReuse bounds for how long a lease is given to further keys; 0 is a
	// minute.
	LeaseReuse time.Duration
	// PollInterval is how often members are asked for their size and version; 0 is
	// 30 seconds, negative is once.
	PollInterval time.Duration
	// DialTimeout bounds the first contact with the cluster; 0 is 20 seconds.
	DialTimeout time.Duration
	// Dial opens connections to members, as (*net.Dialer).DialContext does; nil opens
	// them directly.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Logger receives what an operator should know; nil is slog.Default().
	Logger *slog.Logger
	// OnFailure is told, once, that the store failed for good (storage.ErrFailed): the
	// process must begin anew. It must not call the store and not block.
	OnFailure func(error)
}

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

// tls returns the configuration of connections, nil for what the endpoints'
// schemes say by themselves.
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

// dial returns what connections are opened with, beside the client's own ways.
func (o Options) dial() []grpc.DialOption {
	if o.Dial == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		if u, err := url.Parse(address); err == nil && u.Host != "" {
			address = u.Host
		}
		return o.Dial(ctx, "tcp", address)
	})}
}

// keys maps keys of the interface to those in etcd and back.
type keys struct{ prefix string }

// span is a range of keys in etcd: from lo (inclusive) to hi (exclusive), "" being
// no upper bound.
type span struct{ lo, hi string }

var errOutsideRoot = errors.New("the key is not below " + DefaultPrefix)

func (k keys) to(key string) (string, error) {
	if k.prefix == "" {
		return key, nil
	}
	if len(key) < len(DefaultPrefix) || key[:len(DefaultPrefix)] != DefaultPrefix {
		return "", fmt.Errorf("%q: %w", key, errOutsideRoot)
	}
	return k.prefix + key[len(DefaultPrefix):], nil
}

func (k keys) from(key []byte) string {
	if k.prefix == "" {
		return string(key)
	}
	return DefaultPrefix + string(key[len(k.prefix):])
}

// span maps a range. What lies outside of the root has no entries.
func (k keys) span(lo, hi string) span {
	if k.prefix == "" {
		return span{lo, hi}
	}
	r := span{lo, hi}.and(span{DefaultPrefix, storage.PrefixEnd(DefaultPrefix)})
	if r.empty() {
		return span{k.prefix, k.prefix}
	}
	mapped := span{k.prefix + r.lo[len(DefaultPrefix):], storage.PrefixEnd(k.prefix)}
	if r.hi != storage.PrefixEnd(DefaultPrefix) {
		mapped.hi = k.prefix + r.hi[len(DefaultPrefix):]
	}
	return mapped
}

func (s span) and(o span) span {
	s.lo = max(s.lo, o.lo)
	if s.hi == "" || o.hi != "" && o.hi < s.hi {
		s.hi = o.hi
	}
	return s
}

func (s span) empty() bool { return s.hi != "" && s.lo >= s.hi }

// wire returns the range as requests have it: a zero byte stands for the smallest
// key, and as the end for no end.
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
