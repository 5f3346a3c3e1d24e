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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/config"
	clientcert "github.com/keelson-dev/keelson/internal/access/auth/x509"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/server/authentication"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/server/chain"
	"github.com/keelson-dev/keelson/internal/server/httpconn"
	"github.com/keelson-dev/keelson/internal/server/identity"
	"github.com/keelson-dev/keelson/internal/server/listener"
	"github.com/keelson-dev/keelson/internal/server/reload"
	"github.com/keelson-dev/keelson/internal/server/servingcert"
)

const (
	maxHeaderBytes    = 1 << 20
	readHeaderTimeout = 32 * time.Second
	idleTimeout       = 90 * time.Second
	maxStreams        = 100 // of one HTTP/2 connection at most, as in kube-apiserver
	minStreams        = 10
	maxFrame          = 1 << 20
	maxBuffered       = 3 << 20 // unread bytes of uploads on one connection; a body is at most 3 MiB
	pingAfter         = 30 * time.Second

	// drainTime is how long a stopping server waits for requests in flight after the end of their own timeout.
	drainTime   = 5 * time.Second
	goodbyeTime = 250 * time.Millisecond
	activePoll  = 2 * time.Millisecond
)

// frontend is the HTTP server with its connections, the filters and the router.
type frontend struct {
	serving  *config.Serving
	requests *config.Requests
	server   *http.Server
	routes   *router

	watches    context.Context // ends when long-running requests have to
	endWatches context.CancelFunc
	refusing   atomic.Bool  // new requests are rejected with 429
	active     atomic.Int64 // requests being served, and connections whose bytes wait to be written
	// short is the number of active requests that are not long-running. begun is the number of all requests so
	// far.
	short, begun atomic.Int64
}

// frontendOptions are the dependencies of frontend.
type frontendOptions struct {
	serving        *config.Serving
	requests       *config.Requests
	maxStreams     int // limit for one HTTP/2 connection
	files          *reload.Files
	routes         *router
	identity       *identity.Identity
	authentication *authentication.Authentication
	// chain are the options of the filters, except for Stop, which frontend sets itself.
	chain chain.Options
	log   *slog.Logger
}

// newFrontend returns an HTTP server whose requests pass the filters and then the router.
func newFrontend(o frontendOptions) (*frontend, error) {
	encryption, err := servingcert.TLSConfig(o.serving, o.files, o.identity.Serving)
	if err != nil {
		return nil, err
	}
	f := &frontend{serving: o.serving, requests: o.requests, routes: o.routes}
	f.watches, f.endWatches = context.WithCancel(context.Background())
	o.chain.Log, o.chain.RequestTimeout = o.log, o.requests.Timeout
	o.chain.Stop = chain.Stop{
		Begun: f.watches, Spread: o.serving.Shutdown.WatchGrace, Running: &f.active, Refusing: f.refusing.Load,
		LongRunning: func() (ended func()) {
			f.short.Add(-1)
			return func() { f.short.Add(1) }
		},
	}
	o.chain.Forwarder = f.routes.forwarder
	o.chain.Browsers.CORSAllowedOrigins, o.chain.Browsers.HSTSDirectives = o.requests.CORSAllowedOrigins, o.requests.HSTSDirectives
	o.chain.GoawayChance = o.requests.GoawayChance
	connections := &connectionLog{Handler: o.log.Handler(), handshakeError: handshakeErrors(o.chain.Metrics).Inc}
	f.server = &http.Server{
		Handler:           f.counted(chain.New(f.routes, o.chain)),
		TLSConfig:         o.authentication.Authorities.TLSConfig(encryption),
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: o.maxStreams, MaxReadFrameSize: maxFrame,
			MaxReceiveBufferPerConnection: maxBuffered, MaxReceiveBufferPerStream: maxBuffered,
			SendPingTimeout: pingAfter,
		},
		ErrorLog:    slog.NewLogLogger(connections, slog.LevelDebug),
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return clientcert.WithConnection(ctx) },
	}
	if o.serving.DisableHTTP2 {
		f.server.Protocols = new(http.Protocols)
		f.server.Protocols.SetHTTP1(true)
	}
	f.server.TLSConfig.GetConfigForClient = httpconn.BatchHTTP2(f.server.TLSConfig)
	return f, nil
}

// serve serves the connections of a listener. If serving ends before the server stops, it reports that to end.
func (f *frontend) serve(l *listener.Listener, end *ending) {
	accepted := &httpconn.Listener{Listener: l, Stopping: f.watches}
	go func() {
		var err error
		if l.InProcess() {
			err = f.server.Serve(accepted)
		} else {
			accepted.Batches = &f.active
			err = f.server.ServeTLS(accepted, "", "")
		}
		if !end.stopping.Load() && !errors.Is(err, http.ErrServerClosed) {
			end.fail(fmt.Errorf("serving ended: %w", err))
		}
	}()
}

// endLongRunning ends watches and other long-running requests. frontend may be nil.
func (f *frontend) endLongRunning() {
	if f != nil {
		f.endWatches()
	}
}

// refuse rejects new requests with 429, if that is configured, and returns after the requests in flight have
// ended.
func (f *frontend) refuse(ctx context.Context) error {
	if !f.serving.Shutdown.SendRetryAfter {
		return nil
	}
	f.refusing.Store(true)
	f.endWatches()
	ctx, cancel := context.WithTimeout(ctx, f.requests.Timeout)
	defer cancel()
	return f.idle(ctx)
}

// idle waits until no request is served and the responses are written.
func (f *frontend) idle(ctx context.Context) error {
	var err error
	for f.active.Load() > 0 && err == nil {
		err = background.Sleep(ctx, activePoll)
	}
	return err
}

// drain waits for the requests in flight and then closes the remaining ones. Clients get GOAWAY.
// http.Server.Shutdown alone would also wait for idle HTTP/2 connections that clients keep open, so after the last
// response they only get a short time to receive it.
func (f *frontend) drain(ctx context.Context) error {
	longest := max(f.requests.Timeout, f.serving.Shutdown.WatchGrace) + drainTime
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = f.server.Shutdown(ctx) // the error is ctx's, or comes from the closed listener
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
		f.short.Add(1)
		defer f.short.Add(-1)
		f.begun.Add(1)
		if !strings.Contains(r.URL.RawQuery, "watch") { // a watch keeps its stack for long, and is not in a hurry
			growStack(0)
		}
		next.ServeHTTP(w, r)
	})
}

// growStack grows the stack of the calling goroutine to 16 KiB. HTTP/2 starts a goroutine with a stack of 2 KiB
// for each request, and filters and handler together need about 8 KiB. Without growStack, the stack is copied two
// or three times while they run, each time with more frames to adjust. That took 12 % of the processor time of a
// GET.
//
//go:noinline
func growStack(i int) byte {
	var frame [8 << 10]byte
	return frame[i]
}

// handshakeErrors registers and returns the metric of failed TLS handshakes.
func handshakeErrors(m *metrics.Metrics) prometheus.Counter {
	return m.Counter("apiserver_tls_handshake_errors_total",
		"[ALPHA] Number of requests dropped with 'TLS handshake error from' error")
}

// connectionLog counts the failed TLS handshakes that net/http logs.
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

// Enabled implements slog.Handler. It returns true because Handle filters the lines.
func (l *connectionLog) Enabled(context.Context, slog.Level) bool { return true }
