package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
)

// openDebugSocket serves /debug/pprof and /debug/flags/v on the socket of Config.DebugSocketPath, if there is one.
func (f *frontend) openDebugSocket(ctx context.Context) error {
	path := f.config.DebugSocketPath
	if path == "" {
		return nil
	}
	// A process that was killed leaves its socket behind.
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("--debug-socket-path: %w", err)
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("--debug-socket-path: %w", err)
	}
	if err := os.Chmod(path, privateFile); err != nil {
		return errors.Join(fmt.Errorf("--debug-socket-path: %w", err), l.Close())
	}
	f.debug = &http.Server{Handler: http.HandlerFunc(f.routes.serveDebug), ReadHeaderTimeout: readHeaderTimeout}
	go func() { _ = f.debug.Serve(l) }() // it ends when the server closes it
	return nil
}

// closeDebugSocket closes the socket and removes its file. frontend may be nil.
func (f *frontend) closeDebugSocket() {
	if f != nil && f.debug != nil {
		_ = f.debug.Close() // the file is removed with the listener
	}
}

// serveDebug serves what the debug socket has.
func (t *router) serveDebug(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/debug/pprof"):
		serveProfile(w, r)
	case t.setVerbosity != nil && r.URL.Path == "/debug/flags/v":
		t.serveVerbosity(w, r)
	default:
		http.NotFound(w, r)
	}
}
