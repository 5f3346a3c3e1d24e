package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/server/listener"
)

// openDebugSocket serves /debug/pprof and /debug/flags/v on the socket of Diagnostics.DebugSocketPath, if there is one.
func (s *starting) openDebugSocket(ctx context.Context) error {
	path := s.config.Diagnostics.DebugSocketPath
	if path == "" {
		return nil
	}
	l, err := listener.ListenUnix(ctx, path)
	if err != nil {
		return config.Errorf("{Diagnostics.DebugSocketPath}: %w", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(s.http.routes.serveDebug), ReadHeaderTimeout: readHeaderTimeout}
	s.work.Go("debug socket", background.Forever(func(ctx context.Context) {
		stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // the file is removed with the listener
		defer stop()
		_ = server.Serve(l) // Serve returns after AfterFunc closes the server
	}))
	return nil
}

// serveDebug serves the requests that arrive at the debug socket.
func (ro *router) serveDebug(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/debug/pprof"):
		serveProfile(w, r)
	case ro.debug.setVerbosity != nil && r.URL.Path == "/debug/flags/v":
		ro.serveVerbosity(w, r)
	default:
		http.NotFound(w, r)
	}
}
