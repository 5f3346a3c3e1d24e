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
}

// Start starts a server and returns when it answers requests. ctx bounds the start
// alone. The caller stops the server with Stop.
func Start(ctx context.Context, c Config) (*Server, error) {
	s, err := server.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Server{s}, nil
}

// Stop ends the server in order: no new requests, requests in flight finish and
// watches end, then the store is closed. It waits until ctx ends at most. Calls
// after the first return the same.
func (s *Server) Stop(ctx context.Context) error { return s.server.Stop(ctx) }

// Failed receives an error when the server cannot go on (its store failed, its
// listener broke) and has to be stopped.
func (s *Server) Failed() <-chan error { return s.server.Failed() }

// URL is where the server is reached, such as https://127.0.0.1:6443.
func (s *Server) URL() string { return s.server.URL() }

// RESTConfig returns a new client configuration for an administrator, without
// limits of the client's own.
func (s *Server) RESTConfig() *rest.Config {
	admin := s.server.Admin()
	return &rest.Config{
		Host: s.URL(),
		TLSClientConfig: rest.TLSClientConfig{
			CAData: s.server.CA(), CertData: admin.Cert, KeyData: admin.Key,
		},
		BearerToken: s.server.AdminToken(), // "" if the administrator has a certificate
		QPS:         -1,
	}
}

// Kubeconfig returns the content of a kubeconfig for an administrator.
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
