package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	clientcert "github.com/keelson-dev/keelson/auth/x509"
	"github.com/keelson-dev/keelson/server/chain"
)

const (
	maxHeaderBytes    = 1 << 20
	readHeaderTimeout = 32 * time.Second
	idleTimeout       = 90 * time.Second
	maxStreams        = 100 // of one HTTP/2 connection at most, as in kube-apiserver
	minStreams        = 10
	maxFrame          = 1 << 20
	maxBuffered       = 3 << 20 // of one connection's uploads: a body is at most 3 MiB
	pingAfter         = 30 * time.Second

	// drainTime is how long requests in flight are waited for beyond what their
	// own deadline gives them.
	drainTime   = 5 * time.Second
	goodbyeTime = 250 * time.Millisecond
	activePoll  = 2 * time.Millisecond
)

// frontend is what speaks HTTP: the server of connections, the filters and the router.
type frontend struct {
	config *Config
	server *http.Server
	routes *router

	watches    context.Context // ends when long-running requests have to
	endWatches context.CancelFunc
	refusing   atomic.Bool  // new requests are sent elsewhere
	active     atomic.Int64 // requests being served
}

// frontendOptions are what frontend needs.
type frontendOptions struct {
	config         *Config
	routes         *router
	identity       *identity
	authentication *authentication
	// chain says how the filters work, but for what frontend knows itself: the
	// configuration and what happens when the server stops.
	chain chain.Options
	log   *slog.Logger
}

// newFrontend puts the filters before the router, and a server of connections before
// these.
func newFrontend(o frontendOptions) *frontend {
	f := &frontend{config: o.config, routes: o.routes}
	f.watches, f.endWatches = context.WithCancel(context.Background())
	filters := &o.config.Filters
	o.chain.Log, o.chain.RequestTimeout = o.log, o.config.RequestTimeout
	o.chain.Stopping, o.chain.Spread, o.chain.Running = f.watches, filters.ShutdownWatchGrace, &f.active
	o.chain.Refusing = f.refusing.Load
	o.chain.CORSAllowedOrigins, o.chain.HSTSDirectives = filters.CORSAllowedOrigins, filters.HSTSDirectives
	o.chain.GoawayChance = filters.GoawayChance
	connections := &connectionLog{Handler: o.log.Handler(), handshakeError: o.chain.Metrics.HandshakeError}
	f.server = &http.Server{
		Handler:           f.counted(chain.New(f.routes, o.chain)),
		TLSConfig:         o.authentication.authorities.tlsConfig(o.identity.serving),
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: o.config.maxStreams(), MaxReadFrameSize: maxFrame,
			MaxReceiveBufferPerConnection: maxBuffered, MaxReceiveBufferPerStream: maxBuffered,
			SendPingTimeout: pingAfter,
		},
		ErrorLog:    slog.NewLogLogger(connections, slog.LevelDebug),
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return clientcert.WithConnection(ctx) },
	}
	return f
}

// serve serves the connections of a listener. It tells the server's end where that ends
// before the server stops.
func (f *frontend) serve(l *listener, end *ending) {
	go func() {
		err := f.server.ServeTLS(l, "", "")
		if !end.stopping.Load() && !errors.Is(err, http.ErrServerClosed) {
			end.fail(fmt.Errorf("serving ended: %w", err))
		}
	}()
}

// endLongRunning ends watches and other requests that have no end of their own. A nil
// frontend has none.
func (f *frontend) endLongRunning() {
	if f != nil {
		f.endWatches()
	}
}

// refuse answers new requests 429, where that was asked for, until those in flight
// are finished.
func (f *frontend) refuse(ctx context.Context) error {
	if !f.config.Filters.ShutdownSendRetryAfter {
		return nil
	}
	f.refusing.Store(true)
	f.endWatches()
	ctx, cancel := context.WithTimeout(ctx, f.config.RequestTimeout)
	defer cancel()
	return f.idle(ctx)
}

// idle waits until no request is served.
func (f *frontend) idle(ctx context.Context) error {
	var err error
	for f.active.Load() > 0 && err == nil {
		err = sleep(ctx, activePoll)
	}
	return err
}

// drain waits for requests in flight; those that take longer are cut off.
// Connections are told to go away. http.Server.Shutdown alone would wait for a
// client that keeps an idle HTTP/2 connection, so once nothing is in flight it has
// a moment to see the last answers off.
func (f *frontend) drain(ctx context.Context) error {
	longest := max(f.config.RequestTimeout, f.config.Filters.ShutdownWatchGrace) + drainTime
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = f.server.Shutdown(ctx) // its error is that of ctx, or of the listener that is closed already
	}()
	overdue := f.idle(ctx)
	select {
	case <-gone:
	case <-time.After(goodbyeTime):
	}
	return errors.Join(overdue, f.closeConnections())
}

func (f *frontend) closeConnections() error {
	if err := f.server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// counted counts the requests that are being served.
func (f *frontend) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.active.Add(1)
		defer f.active.Add(-1)
		next.ServeHTTP(w, r)
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// connectionLog counts failed handshakes among what net/http logs.
type connectionLog struct {
	slog.Handler
	handshakeError func()
}

// Handle implements slog.Handler.
func (l *connectionLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "TLS handshake error") {
		l.handshakeError()
	}
	if !l.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

// Enabled implements slog.Handler: every line is looked at.
func (l *connectionLog) Enabled(context.Context, slog.Level) bool { return true }
