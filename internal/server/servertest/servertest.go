// Package servertest starts a whole server for tests of a package that is one of its parts. Only external test
// packages (such as quota_test) can use it, because it imports all parts.
package servertest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// Config is the configuration of a server.
type Config struct {
	config.Config
	server.Options
}

// Default returns the defaults of tests: a free port, objects in memory, no log, and only the named controllers.
func Default(controllers ...string) Config {
	c := Config{Config: config.Default()}
	c.Storage.Backend, c.Storage.DataDir, c.Serving.Port = config.StorageMemory, "", 0
	c.Diagnostics.Log = slog.New(slog.DiscardHandler)
	c.Controllers.Names = append(controllers, "-*")
	return c
}

// Server is a server, with a client of its administrator.
type Server struct {
	*server.Server
	*apitest.Client
}

// Start starts a server, which is stopped when the test ends.
func Start(t testing.TB, c Config) *Server {
	t.Helper()
	s, err := server.Start(t.Context(), c.Config, c.Options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Stop(t, s) })
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.CA())
	pair, err := s.Admin().TLS()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}, ForceAttemptHTTP2: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &Server{s, apitest.NewClient(t, &http.Client{Transport: transport}, s.URL())}
}

// Idle waits until the server is idle, as keelson.Server.WaitForIdle defines it. Controllers have then finished
// the work that earlier requests caused.
func (s *Server) Idle(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	if err := s.WaitForIdle(ctx, 0); err != nil {
		t.Fatal(err)
	}
}

// Stop stops a server.
func Stop(t testing.TB, s interface{ Stop(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}
