// Package keelson runs a Kubernetes API server inside a Go program. It is the server of the command keelson, with
// its data in a directory or in memory.
//
// A program configures a server (package config), starts it, makes clients with its RESTConfig, and stops it:
//
//	s, err := keelson.Start(ctx, config.InMemory())
//	if err != nil {
//		return err
//	}
//	defer s.Stop(context.Background())
//	client, err := kubernetes.NewForConfig(s.RESTConfig())
//
// If a running server cannot go on, it sends an error to the channel that Server.Failed returns.
//
// In a test, ForTest starts a server in memory that is stopped when the test ends. In the order in which a test
// usually calls them: Server.Load applies objects from files, Server.RESTConfigFor makes clients of other users,
// Server.Inject and ServeWebhook make requests fail, Server.WaitForIdle waits for the server's controllers,
// Server.WaitForQuiet also for those of the test, and Server.Requests returns the requests of clients.
// Server.Snapshot keeps a prepared state, from which Snapshot.ForTest starts many servers. Package clock has a
// clock with which a test moves the time of objects.
//
// The packages keelson, config and clock are the public API of the module.
package keelson

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server"
)

// Server is a running server. Its methods may be called concurrently.
type Server struct {
	server *server.Server
	// config is the argument of Start, before it was completed.
	config config.Config
	// transport has the connections of clients to a server without a socket. It is nil for other servers.
	transport *http.Transport
}

// Start starts a server and returns when it serves requests. ctx limits only the start. The caller must call Stop
// to end the server.
//
// Fields of the configuration with the zero value get their defaults: config.Config{} is a server like `keelson serve`
// without flags. An error of the configuration names the field, and has the type *config.Error or joins several of them.
func Start(ctx context.Context, c config.Config) (*Server, error) {
	s, err := server.Start(ctx, c.Complete(), server.Options{})
	if err != nil {
		return nil, err
	}
	return newServer(s, c), nil
}

func newServer(s *server.Server, c config.Config) *Server {
	const idle = 16 // connections; each watch and each concurrent request has one
	out := &Server{server: s, config: c}
	if c.Serving.InProcess {
		out.transport = &http.Transport{
			DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx) },
			MaxIdleConnsPerHost: idle, DisableCompression: true,
		}
	}
	return out
}

// Stop ends the server in order: it accepts no new requests, finishes those in flight, ends watches, and closes
// the store. It waits at most until ctx ends. Later calls return the same error.
func (s *Server) Stop(ctx context.Context) error {
	err := s.server.Stop(ctx)
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
	return err
}

// WaitForIdle waits until the server has nothing left to do, as far as it knows:
//
//   - no request is served but long-running ones, such as watches;
//   - the events of all writes were sent to the watches that are open: they are on their way to the clients, or in
//     buffers of the connections;
//   - the controllers in the server have handled all changes, also those that they have made themselves: the deletion of
//     namespaces and of the objects of definitions, garbage collection, quotas, service accounts, certificates in
//     namespaces, aggregated roles, conditions of definitions and policies, APIServices. Work that a controller does
//     again after an error, or has planned for the next ten seconds, is still to be done.
//
// It does not know the work of clients, such as the reconcilers of a test. After WaitForIdle they may still have
// to handle events that they have received, and their next request ends the idleness. See WaitForQuiet. It does
// not wait for work at a certain time or at intervals: the end of Events, tokens and finished Jobs in more than
// ten seconds, new counts of quotas, checks of extension API servers, the endpoints of the Service kubernetes. A
// namespace whose objects have finalizers that nobody removes keeps the server busy, and so does a watch that its
// client does not read.
//
// ctx limits the wait. If it ends first, the error names the work that is not finished.
func (s *Server) WaitForIdle(ctx context.Context) error { return s.server.WaitForIdle(ctx, 0) }

// WaitForQuiet waits until the server has been idle, as WaitForIdle defines it, for the time quiet without a break: no
// request has come, and no object has changed. It is for tests whose own controllers are clients of the server: they
// get an event, and some time later they send requests. quiet has to be longer than that time. 100 milliseconds are
// enough for a controller that handles its events at once; 1 second also on a busy machine.
//
// The caches of such controllers are behind the server. For example, a controller that sees the deletion of an
// object before the deletion of its owner may create the object again, and the garbage collector deletes it again.
// WaitForQuiet returns after both.
//
// A controller that waits for longer than quiet (RequeueAfter, a back-off) may still have work afterwards. A
// client that sends requests at shorter intervals keeps the server from being quiet. ctx limits the wait. If it
// ends first, the error says what is not finished.
func (s *Server) WaitForQuiet(ctx context.Context, quiet time.Duration) error {
	return s.server.WaitForIdle(ctx, quiet)
}

// Failed returns a channel that receives an error when the server cannot go on and must be stopped, for example
// because its store or its listener failed.
func (s *Server) Failed() <-chan error { return s.server.Failed() }

// URL returns the URL of the server, such as https://127.0.0.1:6443. With Serving.InProcess, only clients with a
// configuration from RESTConfig or RESTConfigFor can use it.
func (s *Server) URL() string { return s.server.URL() }

// RESTConfig returns a new client configuration for an administrator, a member of system:masters, without
// client-side rate limits. The administrator has a client certificate, or, with Serving.InProcess, a token of this
// server.
func (s *Server) RESTConfig() *rest.Config {
	c := s.restConfig()
	admin := s.server.Admin()
	c.CertData, c.KeyData, c.BearerToken = admin.Cert, admin.Key, s.server.AdminToken()
	return c
}

// RESTConfigFor returns a new client configuration for another user, to test what the rules of RBAC allow. The user has
// the groups, and system:authenticated. It authenticates with a token of this server, which is valid until Stop.
//
// A service account is the user system:serviceaccount:NAMESPACE:NAME in the groups system:serviceaccounts and
// system:serviceaccounts:NAMESPACE; it need not exist.
func (s *Server) RESTConfigFor(user string, groups ...string) *rest.Config {
	c := s.restConfig()
	c.BearerToken = s.server.UserToken(user, groups)
	return c
}

// restConfig returns a client configuration without credentials.
func (s *Server) restConfig() *rest.Config {
	if s.transport != nil {
		return &rest.Config{Host: s.URL(), Transport: s.transport, Dial: s.transport.DialContext, QPS: -1}
	}
	return &rest.Config{Host: s.URL(), TLSClientConfig: rest.TLSClientConfig{CAData: s.server.CA()}, QPS: -1}
}

// Kubeconfig returns the content of a kubeconfig for an administrator, nil with Serving.InProcess.
func (s *Server) Kubeconfig() []byte { return s.server.Kubeconfig() }

// KubeconfigPath returns the path of a file with the content of Kubeconfig, "" for a server without a data
// directory.
func (s *Server) KubeconfigPath() string { return s.server.KubeconfigPath() }

// Snapshot keeps the present state of the server, with all acknowledged writes: a prepared state from which many servers
// can be started. It needs the embedded store or the store in memory. The caller must call Close of the snapshot.
func (s *Server) Snapshot(ctx context.Context) (*Snapshot, error) {
	p, err := s.server.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return &Snapshot{snapshot: p, config: s.config}, nil
}

// Fork starts a server with the state of s. Afterwards, neither server sees the writes of the other one. To start
// several servers with the same state, use Snapshot and Snapshot.Start.
func (s *Server) Fork(ctx context.Context, change ...func(*config.Config)) (*Server, error) {
	p, err := s.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	fork, err := p.Start(ctx, change...)
	if closeErr := p.Close(); err == nil && closeErr != nil {
		return nil, errors.Join(closeErr, fork.Stop(ctx))
	}
	return fork, err
}

// Snapshot is the state of a server at one moment. It does not change. Its methods may be called concurrently.
type Snapshot struct {
	snapshot *server.Snapshot
	config   config.Config // of the snapshot's server, before it was completed
}

// Start starts a server with the state of the snapshot, and returns when it answers requests; ctx limits only the start.
// The server has the configuration of the snapshot's server, as altered by change, and a free port. If the snapshot is
// one of a server with a data directory, change must set another DataDir; on the same file system, objects take no
// space there until they are changed.
//
// The new server has the same objects with the same UIDs and resource versions, the same certificate authority,
// administrator and key of service account tokens. Resource versions continue from those of the snapshot. A watch may
// begin at an old resource version, as on the snapshot's server; if that is older than Storage.HistoryWindow, it gets 410
// Expired. The server does not create default objects that were deleted before the snapshot.
func (sn *Snapshot) Start(ctx context.Context, change ...func(*config.Config)) (*Server, error) {
	c := sn.config
	c.Storage.DataDir, c.Serving.Port = "", config.FreePort
	for _, f := range change {
		f(&c)
	}
	complete := c.Complete()
	complete.Storage.DataDir = c.Storage.DataDir // no default: the original server may use it
	s, err := sn.snapshot.Start(ctx, complete)
	if err != nil {
		return nil, err
	}
	return newServer(s, c), nil
}

// Close releases the files and the memory that the snapshot holds. Servers that were started from it are not
// affected.
func (sn *Snapshot) Close() error { return sn.snapshot.Close() }
