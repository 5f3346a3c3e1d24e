// Package keelson runs a Kubernetes API server inside a Go program: the same one
// that the command serves, from a directory or from memory.
//
//	s, err := keelson.Start(ctx, keelson.InMemory())
//	...
//	defer s.Stop(context.Background())
//	client, err := kubernetes.NewForConfig(s.RESTConfig())
package keelson

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/server"
)

// Config says how to run a server. Start from DefaultConfig or InMemory.
type Config = server.Config

// Storage backends for Config.Storage.
const (
	StorageEmbedded = server.StorageEmbedded
	StorageMemory   = server.StorageMemory
	StorageEtcd     = server.StorageEtcd
)

// DefaultConfig is what `keelson serve` does without flags: data in
// ./keelson-data, HTTPS on 127.0.0.1:6443.
func DefaultConfig() Config { return server.DefaultConfig() }

// InMemory is a server that writes nothing to disk and listens on a free port of
// the loopback interface.
func InMemory() Config {
	c := server.DefaultConfig()
	c.Storage, c.DataDir, c.SecurePort = StorageMemory, "", 0
	return c
}

// Server is a running server. Its methods may be called concurrently.
type Server struct {
	server *server.Server
	// transport has the connections of clients to a server without a socket. It is nil for other servers.
	transport *http.Transport
}

// Start starts a server and returns when it answers requests. ctx bounds the start
// alone. The caller stops the server with Stop.
func Start(ctx context.Context, c Config) (*Server, error) {
	s, err := server.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	return newServer(s, &c), nil
}

func newServer(s *server.Server, c *Config) *Server {
	const idle = 16 // connections; each watch and each concurrent request has one
	out := &Server{server: s}
	if c.InProcess {
		out.transport = &http.Transport{
			DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx) },
			MaxIdleConnsPerHost: idle, DisableCompression: true,
		}
	}
	return out
}

// Stop ends the server in order: no new requests, requests in flight finish and
// watches end, then the store is closed. It waits until ctx ends at most. Calls
// after the first return the same.
func (s *Server) Stop(ctx context.Context) error {
	err := s.server.Stop(ctx)
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
	return err
}

// Failed receives an error when the server cannot go on (its store failed, its
// listener broke) and has to be stopped.
func (s *Server) Failed() <-chan error { return s.server.Failed() }

// URL is where the server is reached, such as https://127.0.0.1:6443. With Config.InProcess only clients with a
// configuration of RESTConfig or RESTConfigFor reach it.
func (s *Server) URL() string { return s.server.URL() }

// RESTConfig returns a new client configuration for an administrator, a member of system:masters, without limits of the
// client's own. The administrator has a client certificate, or with Config.InProcess a token of this server.
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

// Kubeconfig returns the content of a kubeconfig for an administrator, nil with Config.InProcess.
func (s *Server) Kubeconfig() []byte { return s.server.Kubeconfig() }

// KubeconfigPath is the file that holds it, "" for a server without a directory.
func (s *Server) KubeconfigPath() string { return s.server.KubeconfigPath() }

// TB is what ForTest needs of testing.TB.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(func())
}

// ForTest starts a server in memory that ends with the test. change may alter
// its configuration first; without a Log it logs nothing.
func ForTest(t TB, change ...func(*Config)) *Server {
	t.Helper()
	const startTime, stopTime = 30 * time.Second, 30 * time.Second
	config := InMemory()
	config.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	for _, f := range change {
		f(&config)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	s, err := Start(ctx, config)
	if err != nil {
		t.Fatalf("keelson: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("keelson: %v", err)
		}
	})
	return s
}
