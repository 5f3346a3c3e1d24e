// Package member runs a member of an etcd cluster in this process, for servers that keep their data together without another program.
// The consensus and the store are etcd's (go.etcd.io/etcd/server); this package starts and ends them, and changes the membership.
//
// member.go has the Member, membership.go who belongs to the cluster, upkeep.go the size of the database, reset.go how a member goes on
// alone.
package member

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	serverconfig "go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/features"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// Options configure a member.
type Options struct {
	// Dir has the data of the member. No other process uses it.
	Dir string
	// Name is the name of the member, which no other one has.
	Name string
	// PeerURL is where the other members reach this one, such as https://10.0.0.1:2380. ClientURL is where clients of the server do.
	PeerURL, ClientURL string
	// Listen is the address at which this process accepts connections of other members.
	Listen string
	// CertFile, KeyFile and CAFile are the certificate with which members prove that they are, its key, and the authority of all of them.
	// The first two are read for each connection.
	CertFile, KeyFile, CAFile string
	// Cluster has, for a member without data, the URLs of all members by name, also of this one. Joins says that the cluster exists, and
	// that this member was added to it; otherwise it is made.
	Cluster map[string]string
	Joins   bool
	// Alone makes the member the only one of its cluster, with the data that it has: what it has not received is lost.
	Alone bool
	// Handler serves the paths of the peers' address that etcd does not: those that begin with Prefix.
	Handler http.Handler
	// OnFailure is called once, if the member ends and Close was not called.
	OnFailure func(error)
	Log       *slog.Logger
}

// Prefix is the beginning of the paths that Options.Handler serves.
const Prefix = "/keelson/"

const (
	// The leader sends a heartbeat each tick, and another member stands for election after electionTicks to twice that many without one:
	// after 1 to 2 seconds.
	tickMilliseconds, electionTicks = 100, 10
	// maxRequestBytes is the largest request. It is more than an API server accepts from a client.
	maxRequestBytes = 10 << 20
	// maxTransaction is the largest number of operations in a transaction.
	maxTransaction = 1024
	// slowRequest and slowApply are the durations after which etcd logs a request, as a debug message.
	slowRequest, slowApply = 300 * time.Millisecond, 100 * time.Millisecond
	// readTime is how long a request of a peer may take to arrive. A snapshot of the database is one request.
	readTime = 5 * time.Minute
	// waitReport is the time between two messages of a member that waits for a majority. readyTime limits each try, and readyPause is the
	// time between two of them.
	waitReport, readyTime, readyPause = 10 * time.Second, time.Second, 20 * time.Millisecond
)

// Quota is the size of the database, in bytes, above which writes are refused. It is etcd's recommended maximum.
const Quota = 8 << 30

// ErrRemoved is the error of a member that was removed from its cluster.
var ErrRemoved = errors.New("this member was removed from the cluster")

// Member is a running member.
type Member struct {
	o       Options
	server  *etcdserver.EtcdServer
	client  *clientv3.Client
	own     etcd.Own
	peers   *http.Server
	closing atomic.Bool
}

// HasData reports whether a directory has the data of a member.
func HasData(dir string) bool {
	return wal.Exist(filepath.Join(dir, data, "wal")) || wal.Exist(filepath.Join(dir, made, data, "wal"))
}

// RemoveData removes the data of a member.
func RemoveData(dir string) error { return os.RemoveAll(filepath.Join(dir, data)) }

// Start starts a member, and returns when it belongs to the cluster and a majority of the members can be reached, or when ctx ends.
// The caller calls Close.
func Start(ctx context.Context, o Options) (*Member, error) {
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	listener, err := o.listen(&cfg.PeerTLSInfo)
	if err != nil {
		return nil, err
	}
	m := &Member{o: o}
	if m.server, err = etcdserver.NewServer(cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start the member in %s: %w", o.Dir, err), listener.Close())
	}
	m.server.Start()
	m.serve(listener)
	m.client = v3client.New(m.server)
	m.own = etcd.Own{Client: m.client, Watch: adapter.WatchServerToWatchClient(v3rpc.NewWatchServer(m.server))}
	if err := m.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	go m.observe()
	return m, nil
}

// config returns the configuration of etcd.
func (o *Options) config() (c serverconfig.ServerConfig, err error) {
	zap := etcd.Logger(o.Log)
	c = serverconfig.ServerConfig{
		Name: o.Name, DataDir: o.Dir, Logger: zap,
		SnapshotCount: etcdserver.DefaultSnapshotCount, SnapshotCatchUpEntries: etcdserver.DefaultSnapshotCatchUpEntries,
		MaxSnapFiles: 5, MaxWALFiles: 5,
		InitialClusterToken: "keelson", NewCluster: !o.Joins, ForceNewCluster: o.Alone,
		PeerTLSInfo: transport.TLSInfo{
			CertFile: o.CertFile, KeyFile: o.KeyFile, TrustedCAFile: o.CAFile, ClientCertAuth: true, Logger: zap,
		},
		TickMs: tickMilliseconds, ElectionTicks: electionTicks, InitialElectionTickAdvance: true, PreVote: true,
		QuotaBackendBytes: Quota, MaxTxnOps: maxTransaction, MaxRequestBytes: maxRequestBytes,
		WarningApplyDuration: slowApply, WarningUnaryRequestDuration: slowRequest,
		StrictReconfigCheck: true, MaxLearners: 1,
		AuthToken: "simple", TokenTTL: 300,
		CompactHashCheckTime: time.Minute, DowngradeCheckTime: 5 * time.Second,
		V2Deprecation:     serverconfig.V2DeprDefault,
		ServerFeatureGate: features.NewDefaultServerFeatureGate(o.Name, zap),
	}
	if c.PeerURLs, err = types.NewURLs([]string{o.PeerURL}); err != nil {
		return c, err
	}
	if c.ClientURLs, err = types.NewURLs([]string{o.ClientURL}); err != nil {
		return c, err
	}
	var cluster []string
	for name, peer := range o.Cluster {
		cluster = append(cluster, name+"="+peer)
	}
	c.InitialPeerURLsMap, err = types.NewURLsMap(strings.Join(cluster, ","))
	return c, err
}

// listen opens the address for other members. A connection ends when nothing could be read or written for a few seconds: members
// exchange heartbeats.
func (o *Options) listen(info *transport.TLSInfo) (net.Listener, error) {
	config, err := info.ServerConfig()
	if err != nil {
		return nil, fmt.Errorf("the certificate for other members: %w", err)
	}
	config.MinVersion = tls.VersionTLS12
	config.NextProtos = nil // connections become streams of HTTP/1
	l, err := transport.NewListenerWithOpts(o.Listen, "http", transport.WithTimeout(rafthttp.ConnReadTimeout, rafthttp.ConnWriteTimeout))
	if err != nil {
		return nil, fmt.Errorf("cannot listen for other members on %s: %w", o.Listen, err)
	}
	return tls.NewListener(l, config), nil
}

// serve answers other members.
func (m *Member) serve(l net.Listener) {
	peers := etcdhttp.NewPeerHandler(m.server.Logger(), m.server)
	m.peers = &http.Server{
		ReadTimeout: readTime, ErrorLog: log.New(io.Discard, "", 0), // failed handshakes, which anybody can cause
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, Prefix) {
				m.o.Handler.ServeHTTP(w, r)
				return
			}
			peers.ServeHTTP(w, r)
		}),
	}
	go m.peers.Serve(l) //nolint:errcheck // ends with Close
}

// awaitReady waits until this member has what the cluster had when it began to wait.
func (m *Member) awaitReady(ctx context.Context) error {
	for reported := time.Now(); ; {
		limited, cancel := context.WithTimeout(ctx, readyTime)
		err := m.server.LinearizableReadNotify(limited)
		cancel()
		if err == nil {
			return nil
		}
		if time.Since(reported) > waitReport {
			reported = time.Now()
			m.o.Log.Warn("the member waits until a majority of the members can be reached; they are started in any order",
				"members", m.peerURLs(), "error", err)
		}
		select {
		case <-m.server.StopNotify():
			return m.reason()
		case <-ctx.Done():
			return fmt.Errorf("no majority of the members can be reached: %w", ctx.Err())
		case <-time.After(readyPause):
		}
	}
}

// peerURLs returns the addresses of all members.
func (m *Member) peerURLs() (list []string) {
	for _, other := range m.server.Cluster().Members() {
		list = append(list, other.PeerURLs...)
	}
	return list
}

// observe calls OnFailure when the member ends although nobody has closed it.
func (m *Member) observe() {
	<-m.server.StopNotify()
	if !m.closing.Load() {
		m.o.OnFailure(m.reason())
	}
}

// reason returns why the member has ended.
func (m *Member) reason() error {
	if m.server.IsIDRemoved(m.ID()) {
		return ErrRemoved
	}
	return errors.New("the member has ended; the log says why")
}

// Clients returns clients that call the functions of the member. They must not be used after Close.
func (m *Member) Clients() *etcd.Own { return &m.own }

// Close ends the member. If it is the leader, another member becomes the leader first.
func (m *Member) Close() error {
	m.closing.Store(true)
	select {
	case <-m.server.StopNotify():
	default:
		m.server.Stop()
	}
	return m.peers.Close()
}
