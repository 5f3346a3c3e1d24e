package memoryetcd

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// Version is the version of etcd whose API is served. The build metadata names the program.
const Version = "3.6.8+keelson"

// These are the identity of the cluster and of its only member. Clients only compare these numbers with each
// other.
const (
	clusterID, memberID = 0x6b65656c736f6e, 1
	raftTerm            = 2
)

const (
	// DefaultMaxRequestBytes and DefaultMaxTxnOps are the defaults of etcd.
	DefaultMaxRequestBytes = 3 << 19
	DefaultMaxTxnOps       = 128
	// DefaultProgressInterval is the interval in which a watch without changes gets the current revision, as in
	// etcd.
	DefaultProgressInterval = 10 * time.Minute

	messageOverhead  = 512 << 10       // size of a gRPC message beyond its request, as in etcd
	keepAliveMinTime = 5 * time.Second // as in etcd
	expiryInterval   = 500 * time.Millisecond
	// firstBytesTimeout limits the wait for the first bytes of a connection, which show its protocol.
	firstBytesTimeout = 10 * time.Second
)

// Options configure a Server. The zero value is usable.
type Options struct {
	// Name is the name of the member, ClientURLs and PeerURLs its addresses in the list of members.
	Name                 string
	ClientURLs, PeerURLs []string
	// MaxRequestBytes limits a request that writes, and MaxTxnOps the operations of a transaction. 0 is the default.
	MaxRequestBytes, MaxTxnOps int
	// ProgressInterval is the interval in which a watch with progress notifications gets the current revision
	// while it has no changes. 0 means the default.
	ProgressInterval time.Duration
	// Log receives log messages; nil means slog.Default().
	Log *slog.Logger
	// Now is the clock of the leases; nil is time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.MaxRequestBytes == 0 {
		o.MaxRequestBytes = DefaultMaxRequestBytes
	}
	if o.MaxTxnOps == 0 {
		o.MaxTxnOps = DefaultMaxTxnOps
	}
	if o.ProgressInterval == 0 {
		o.ProgressInterval = DefaultProgressInterval
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Server is an etcd in memory. Start it with Serve and end it with Stop. Its methods may be called concurrently.
type Server struct {
	Options
	grpc  *grpc.Server
	http  *http.Server
	ctx   context.Context // ends with Stop
	stop  context.CancelFunc
	tasks sync.WaitGroup

	mu    sync.RWMutex // guards state and changed; held while the first task of Serve is added, and while ctx ends
	state *state
	// changed is closed and replaced when state has changed.
	changed chan struct{}
}

// New returns a server without content.
func New(o Options) *Server {
	s := &Server{Options: o.withDefaults(), state: newState(), changed: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.grpc = grpc.NewServer(
		grpc.MaxRecvMsgSize(s.MaxRequestBytes+messageOverhead), grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(math.MaxUint32),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepAliveMinTime, PermitWithoutStream: true}),
	)
	pb.RegisterKVServer(s.grpc, &keyValues{Server: s})
	pb.RegisterWatchServer(s.grpc, &watches{Server: s})
	pb.RegisterLeaseServer(s.grpc, &leaseService{Server: s})
	pb.RegisterClusterServer(s.grpc, &cluster{Server: s})
	pb.RegisterMaintenanceServer(s.grpc, &maintenance{Server: s})
	s.http = &http.Server{Handler: s.plainHTTP(), ReadHeaderTimeout: firstBytesTimeout}
	s.tasks.Go(s.expireLeases)
	return s
}

// update calls do with the state, which do may change, and wakes the watches if the revision has changed.
func (s *Server) update(do func(*state) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, compacted := s.state.revision, s.state.compacted
	err := do(s.state)
	if s.state.revision != before || s.state.compacted != compacted {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	return err
}

// read calls do with the state, which do must not change.
func (s *Server) read(do func(*state) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return do(s.state)
}

// Serve serves the connections of a listener until Stop: gRPC over HTTP/2, and health and version over HTTP/1. It
// returns nil after Stop. Several listeners can be served at the same time.
func (s *Server) Serve(l net.Listener) error {
	if !s.begin() {
		return l.Close()
	}
	defer s.tasks.Done()
	calls, plain := newQueue(l), newQueue(l)
	s.tasks.Go(func() { _ = s.grpc.Serve(calls) }) // both end when the queues are closed
	s.tasks.Go(func() { _ = s.http.Serve(plain) })
	defer calls.Close()
	defer plain.Close()
	defer l.Close()                                        // needed if stop prevents the call by AfterFunc
	stop := context.AfterFunc(s.ctx, func() { l.Close() }) // ends Accept
	defer stop()
	for {
		c, err := l.Accept()
		if s.ctx.Err() != nil {
			if err == nil {
				c.Close()
			}
			return nil
		}
		if err != nil {
			return err
		}
		s.tasks.Go(func() { dispatch(c, calls, plain) })
	}
}

// begin adds a task. Stop waits for this task and for tasks that are started before it ends. begin returns false
// after Stop was called.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.tasks.Add(1)
	return true
}

// Stop closes all connections and waits until all tasks have ended. The content is lost.
func (s *Server) Stop() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.grpc.Stop()
	_ = s.http.Close()
	s.tasks.Wait()
}

// dispatch passes a connection to gRPC if it uses HTTP/2, and otherwise to the HTTP server.
func dispatch(c net.Conn, calls, plain *queue) {
	const preface = "PRI" // HTTP/2 begins with this, and no method of HTTP/1 does
	r := bufio.NewReader(c)
	_ = c.SetReadDeadline(time.Now().Add(firstBytesTimeout)) // fails only on a closed connection, as Peek does
	first, err := r.Peek(len(preface))
	if err != nil {
		c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	to := plain
	if string(first) == preface {
		to = calls
	}
	to.pass(&peeked{c, r})
}

// peeked is a connection whose first bytes are in a buffer.
type peeked struct {
	net.Conn
	buffer *bufio.Reader
}

// Read implements net.Conn.
func (p *peeked) Read(b []byte) (int, error) {
	if p.buffer.Buffered() > 0 {
		return p.buffer.Read(b)
	}
	return p.Conn.Read(b)
}

// queue is a net.Listener of connections that another listener has accepted.
type queue struct {
	from        net.Listener
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

func newQueue(from net.Listener) *queue {
	return &queue{from: from, connections: make(chan net.Conn), closed: make(chan struct{})}
}

func (q *queue) pass(c net.Conn) {
	select {
	case q.connections <- c:
	case <-q.closed:
		c.Close()
	}
}

// Accept implements net.Listener.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.connections:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (q *queue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

// Addr implements net.Listener.
func (q *queue) Addr() net.Addr { return q.from.Addr() }

// expireLeases removes the leases whose time has ended, and deletes their keys, until Stop.
func (s *Server) expireLeases() {
	ticker := time.NewTicker(expiryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
		}
		var ids []int64
		_ = s.read(func(st *state) error { ids = st.leases.expired(s.Now()); return nil })
		for _, id := range ids {
			if err := s.revoke(id); err != nil && !errors.Is(err, context.Canceled) {
				s.Log.Debug("the lease was revoked meanwhile", "lease", id, "error", err)
			}
		}
	}
}
