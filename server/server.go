// Package server puts the parts together, and starts and stops them in order.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/auth/externalsigner"
	clientcert "github.com/keelson-dev/keelson/auth/x509"
	"github.com/keelson-dev/keelson/controller/serviceclaims"
	"github.com/keelson-dev/keelson/discovery"
	"github.com/keelson-dev/keelson/discovery/openapi"
	"github.com/keelson-dev/keelson/filter/inflight"
	"github.com/keelson-dev/keelson/metrics"
	"github.com/keelson-dev/keelson/server/background"
	"github.com/keelson-dev/keelson/server/certs"
	"github.com/keelson-dev/keelson/server/chain"
	"github.com/keelson-dev/keelson/server/egress"
	"github.com/keelson-dev/keelson/server/features"
	"github.com/keelson-dev/keelson/server/health"
	"github.com/keelson-dev/keelson/server/version"
	"github.com/keelson-dev/keelson/storage"
	"github.com/keelson-dev/keelson/storage/encrypt"
)

const (
	kubeconfigName = "kubeconfig"
	pkiName        = "pki"
	lockName       = "lock"
	storeName      = "store"

	privateFile = 0o600
	privateDir  = 0o700

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
	// workTime is how long background work may take to end.
	workTime   = 5 * time.Second
	activePoll = 2 * time.Millisecond
)

// Server is a running server.
type Server struct {
	config   Config
	log      *slog.Logger
	gates    features.Gates
	services []netip.Prefix

	lock     *dirLock
	listener net.Listener
	store    storage.Store // of what has no other place
	places   []place
	// overridden are further stores, for some resources.
	overridden []storage.Store
	// encryption is nil where values are stored as they are.
	encryption        *encrypt.Encryption
	encryptionMetrics *encrypt.Metrics
	signerMetrics     *externalsigner.Metrics
	egress            *egress.Selector // nil: connections are opened directly
	egressMetrics     *egress.Metrics
	api               *api

	authentication *authentication

	authorization *authorization

	audit *auditing // nil where nothing is audited

	controlPlane *controlPlane
	claims       *serviceclaims.Controller

	certs   *certs.Set
	serving tls.Certificate
	roots   []byte // what clients verify the server with, PEM

	metrics   *metrics.Metrics
	discovery *discovery.Handler
	http      *http.Server
	routes    *router

	work       *background.Group // what goes on beside requests
	watches    context.Context   // ends when long-running requests have to
	endWatches context.CancelFunc

	stopping   atomic.Bool
	refusing   atomic.Bool  // new requests are sent elsewhere
	active     atomic.Int64 // requests being served
	stop       sync.Once
	stopError  error
	failed     chan error // receives why the server cannot go on
	kubeconfig []byte
}

// step is one part of starting or stopping.
type step struct {
	name string
	run  func() error
}

// Start starts a server and returns when it serves requests. ctx bounds the start
// alone; call Stop to end the server.
func Start(ctx context.Context, c Config) (*Server, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &Server{config: c, log: c.Log, failed: make(chan error, 1), signerMetrics: externalsigner.NewMetrics(), egressMetrics: egress.NewMetrics()}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.work = background.New(s.log)
	s.watches, s.endWatches = context.WithCancel(context.Background())
	for _, step := range s.startSteps(ctx) {
		err := ctx.Err()
		if err == nil {
			err = step.run()
		}
		if err != nil {
			return nil, errors.Join(err, s.release())
		}
	}
	return s, nil
}

// startSteps are taken from top to bottom. What may fail for an operator's reason
// comes before anything is changed.
func (s *Server) startSteps(ctx context.Context) []step {
	return []step{
		{"read the feature gates", s.readGates},
		{"parse the service range", s.parseServices},
		{"read the encryption configuration", s.openEncryption},
		{"read how connections are opened", s.openEgress},
		{"open what requests are audited with", s.openAudit},
		{"lock the data directory", s.lockData},
		{"listen", func() error { return s.listen(ctx) }},
		{"open the store", func() error { return s.openStore(ctx) }},
		{"make certificates", s.makeCerts},
		{"build the API", func() error { return s.buildAPI(ctx) }},
		{"build the HTTP server", s.buildHTTP},
		{"write the kubeconfig", s.writeKubeconfig},
		{"serve", s.serve},
	}
}

// stopSteps are taken from top to bottom, each whatever came of those before.
func (s *Server) stopSteps(ctx context.Context) []step {
	return []step{
		{"fail /readyz", func() error { s.stopping.Store(true); return nil }},
		{"leave the endpoints of the API", func() error { return s.leave(ctx) }},
		{"let load balancers notice", func() error { return sleep(ctx, s.config.ShutdownDelay) }},
		{"send new requests elsewhere", func() error { return s.refuse(ctx) }},
		{"close the listener", s.closeListener},
		{"end watches", func() error { s.endWatches(); return nil }},
		{"finish requests in flight", func() error { return s.drain(ctx) }},
		{"hand on audit events", s.closeAudit},
		{"end background work", s.endWork},
		{"close the store and release the directory", s.release},
	}
}

// Stop ends the server in order. Requests in flight are waited for until ctx
// ends. Calls after the first wait for it and return the same.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Do(func() {
		var errs []error
		for _, step := range s.stopSteps(ctx) {
			s.log.Debug("stopping", "step", step.name)
			if err := step.run(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", step.name, err))
			}
		}
		s.stopError = errors.Join(errs...)
	})
	return s.stopError
}

// Failed receives an error when the server cannot go on and has to be stopped.
func (s *Server) Failed() <-chan error { return s.failed }

// fail says that the server cannot go on; the first reason counts.
func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// URL is where the server is reached, such as https://127.0.0.1:6443.
func (s *Server) URL() string { return "https://" + s.hostPort() }

// CA returns the authorities that the server's certificate is verified with, PEM.
func (s *Server) CA() []byte { return s.roots }

// Admin returns a client certificate of a member of system:masters.
func (s *Server) Admin() certs.Pair { return s.certs.Admin }

// Kubeconfig returns a client configuration for the administrator.
func (s *Server) Kubeconfig() []byte { return s.kubeconfig }

// KubeconfigPath is the file of the same content, "" without a data directory.
func (s *Server) KubeconfigPath() string {
	if s.config.DataDir == "" {
		return ""
	}
	return filepath.Join(s.config.DataDir, kubeconfigName)
}

// hostPort is how a client on this machine reaches the listener.
func (s *Server) hostPort() string {
	addr := s.listener.Addr().(*net.TCPAddr)
	ip := addr.IP
	if ip.IsUnspecified() {
		ip = net.IPv4(127, 0, 0, 1)
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(addr.Port))
}

// openEgress reads which connections go through a proxy.
func (s *Server) openEgress() (err error) {
	if file := s.config.EgressSelectorConfigFile; file != "" {
		s.egress, err = egress.Load(file, s.egressMetrics)
	}
	return err
}

func (s *Server) readGates() (err error) {
	s.gates, err = features.Parse(s.config.FeatureGates)
	for _, name := range s.gates.WithoutEffect() {
		s.log.Warn("feature gate has no effect in this server", "gate", name)
	}
	return err
}

func (s *Server) parseServices() (err error) {
	s.services, err = ParseServiceRanges(s.config.ServiceClusterIPRange)
	return err
}

func (s *Server) lockData() error {
	dir := s.config.DataDir
	if dir == "" {
		return nil
	}
	var err error
	if s.lock, err = lockDataDir(dir); err != nil {
		return err
	}
	return tightenDataDir(dir, s.log)
}

// lockDataDir makes the directory if it is missing.
func lockDataDir(dir string) (*dirLock, error) {
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("cannot use the data directory %s: %w", dir, cause(err))
	}
	if err := checkDataDir(dir); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("the data directory %s is %w", dir, ErrDataDirUsed)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot write to the data directory %s: %w", dir, cause(err))
	}
	return lock, nil
}

// makeDir makes a directory and those above it that are missing, and makes their
// entries durable: what is synced in it would be lost with them.
func makeDir(dir string) error {
	var parents []string // of what is missing
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil || filepath.Dir(at) == at {
			break
		}
		parents = append(parents, filepath.Dir(at))
	}
	if err := os.MkdirAll(dir, privateDir); err != nil {
		return err
	}
	for _, parent := range parents {
		d, err := os.Open(parent)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return err
		}
	}
	return nil
}

// cause strips the path that os errors repeat.
func cause(err error) error {
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

func (s *Server) listen(ctx context.Context) (err error) {
	address := net.JoinHostPort(s.config.BindAddress, strconv.Itoa(s.config.SecurePort))
	var lc net.ListenConfig
	s.listener, err = lc.Listen(ctx, "tcp", address)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		var sys *os.SyscallError
		if errors.As(err, &sys) {
			err = sys.Err
		}
		return fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	return nil
}

func (s *Server) makeCerts() error {
	own := s.config.TLSCertFile == ""
	dir := ""
	if s.config.DataDir != "" {
		dir = filepath.Join(s.config.DataDir, pkiName)
	}
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(s.config.BindAddress), net.IP(s.services[0].Addr().Next().AsSlice())}
	if ips[1].IsUnspecified() {
		ips = append(ips[:1], ips[2:]...)
	}
	var err error
	s.certs, err = certs.Ensure(certs.Options{
		Dir: dir, Serving: own, IPs: ips,
		Names: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
	})
	if err != nil {
		return fmt.Errorf("cannot make certificates: %w", err)
	}
	if own {
		s.roots = s.certs.CA
		s.serving, err = s.certs.Serving.TLS()
		return err
	}
	// A certificate from elsewhere: clients verify it with what its file holds.
	if s.roots, err = os.ReadFile(s.config.TLSCertFile); err != nil {
		return err
	}
	if s.serving, err = tls.LoadX509KeyPair(s.config.TLSCertFile, s.config.TLSPrivateKeyFile); err != nil {
		return fmt.Errorf("cannot use --tls-cert-file with --tls-private-key-file: %w", err)
	}
	return nil
}

// checks are what /livez and /readyz ask, in the order of their answers.
func (s *Server) checks() []health.Check {
	always := func(context.Context) error { return nil }
	list := []health.Check{
		{Name: "ping", On: health.Everywhere, Probe: always},
		{Name: "log", On: health.Everywhere, Probe: s.logWorks},
	}
	list = append(list, s.storeChecks()...)
	list = append(list, []health.Check{
		{Name: "informer-sync", On: health.Readyz, Probe: s.cacheFollows},
		{Name: "poststarthook/start-apiextensions-informers", On: health.Everywhere, Probe: s.api.custom.Ready},
		{Name: "poststarthook/crd-informer-synced", On: health.Everywhere, Probe: s.api.custom.Ready},
		{Name: "poststarthook/start-system-namespaces-controller", On: health.Everywhere, Probe: s.api.bootstrapped},
		{Name: "poststarthook/start-cluster-authentication-info-controller", On: health.Everywhere, Probe: s.controlPlane.bootstrapped},
		{Name: "poststarthook/start-kube-apiserver-identity-lease-controller", On: health.Everywhere, Probe: s.controlPlane.bootstrapped},
		{Name: "poststarthook/rbac/bootstrap-roles", On: health.Everywhere, Probe: s.authorization.bootstrapped},
		{Name: "poststarthook/scheduling/bootstrap-system-priority-classes", On: health.Everywhere, Probe: s.controlPlane.bootstrapped},
		{Name: "poststarthook/priority-and-fairness-config-producer", On: health.Everywhere, Probe: s.controlPlane.bootstrapped},
		{Name: "poststarthook/bootstrap-controller", On: health.Everywhere, Probe: s.controlPlane.bootstrapped},
		{Name: "poststarthook/start-kubernetes-service-cidr-controller", On: health.Everywhere, Probe: s.controlPlane.bootstrapped},
		{Name: "shutdown", On: health.Readyz, Probe: s.notStopping},
	}...)
	if s.encryption != nil && s.encryption.HasPlugins() {
		list = append(list, health.Check{Name: "kms-providers", On: health.Everywhere, Probe: s.encryption.Healthy})
	}
	return list
}

func (s *Server) logWorks(ctx context.Context) error {
	if !s.log.Enabled(ctx, slog.LevelError) {
		return errors.New("the log takes no errors")
	}
	return nil
}

// cacheFollows says whether reads from the cache can be served.
func (s *Server) cacheFollows(ctx context.Context) error {
	if timeout := s.config.Etcd.ReadycheckTimeout; timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	for _, p := range s.places {
		if _, err := p.cache.Current(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) newHealth() *health.Handler {
	h := health.New(s.checks(), s.log, s.metrics.Healthcheck)
	if grace := s.config.LivezGracePeriod; grace > 0 {
		end := time.Now().Add(grace)
		h.LivezPasses = func() bool { return time.Now().Before(end) }
	}
	return h
}

func (s *Server) notStopping(context.Context) error {
	if s.stopping.Load() {
		return errors.New("the server is shutting down")
	}
	return nil
}

func (s *Server) buildHTTP() error {
	documents, err := openapi.New(openapi.Options{Sources: []openapi.Source{s.api.custom.documents}})
	if err != nil {
		return err
	}
	limiter := inflight.New(int64(s.config.MaxRequestsInFlight), int64(s.config.MaxMutatingRequestsInFlight))
	s.discovery = discovery.New(discovery.FromKinds(s.api.kinds), s.hostPort())
	s.metrics = metrics.New(metrics.Options{
		Build: buildLabels(), Known: s.hasResource, InFlight: limiter.Current,
		StorageSize: func() int64 { return s.store.Stats().SizeBytes }, StorageDamaged: s.damagedFiles(), StorageCluster: s.clusterName(),
		Objects: s.api.objects, Also: slices.Concat(s.api.custom.collectors(), s.encryptionMetrics.Collectors(), s.signerMetrics.Collectors(), s.egressMetrics.Collectors()),
	})
	s.routes = &router{
		health:  s.newHealth(),
		metrics: s.metrics.Handler(), slis: s.metrics.SLIHandler(),
		discovery: s.discovery, openapi: documents, api: s.api.handler, custom: s.api.custom.Server,
		snapshots: newSnapshots(s.store, s.log),
		pages:     &zpages{started: time.Now(), now: time.Now, flags: s.config.Flags},
		issuer:    s.issuerDiscovery(),
		profiling: s.config.Profiling, setVerbosity: s.config.SetVerbosity,
	}
	handler := chain.New(s.routes, chain.Options{
		Log: s.log, Metrics: s.metrics, Authentication: s.authenticationFilter(), Authorizer: s.authorization,
		Limiter: limiter, RequestTimeout: s.config.RequestTimeout, Stopping: s.watches, Spread: s.config.Filters.ShutdownWatchGrace, Running: &s.active,
		Audit: s.auditFilter(), Refusing: s.refusing.Load, CORSAllowedOrigins: s.config.Filters.CORSAllowedOrigins,
		HSTSDirectives: s.config.Filters.HSTSDirectives, GoawayChance: s.config.Filters.GoawayChance,
	})
	s.http = &http.Server{
		Handler:           s.counted(handler),
		TLSConfig:         s.tlsConfig(),
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: s.config.maxStreams(), MaxReadFrameSize: maxFrame,
			MaxReceiveBufferPerConnection: maxBuffered, MaxReceiveBufferPerStream: maxBuffered,
			SendPingTimeout: pingAfter,
		},
		ErrorLog:    slog.NewLogLogger(&connectionLog{Handler: s.log.Handler(), handshakeError: s.metrics.HandshakeError}, slog.LevelDebug),
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return clientcert.WithConnection(ctx) },
	}
	return nil
}

// hasResource says whether a version of a group has a resource, built-in or custom.
func (s *Server) hasResource(group, version, name string) bool {
	return s.discovery.HasResource(group, version, name) || s.api.custom.HasResource(group, version, name)
}

func buildLabels() metrics.Build {
	v := version.Get()
	return metrics.Build{
		"major": v.Major, "minor": v.Minor, "git_version": v.GitVersion, "git_commit": v.GitCommit, "git_tree_state": v.GitTreeState,
		"build_date": v.BuildDate, "go_version": v.GoVersion, "compiler": v.Compiler, "platform": v.Platform,
	}
}

func (s *Server) writeKubeconfig() error {
	s.kubeconfig = certs.Kubeconfig(s.URL(), s.roots, s.certs.Admin)
	if path := s.KubeconfigPath(); path != "" {
		if err := certs.WriteFile(path, s.kubeconfig, privateFile); err != nil {
			return fmt.Errorf("cannot write %s: %w", path, cause(err))
		}
	}
	return nil
}

func (s *Server) serve() error {
	s.followAuthentication()
	s.followAuthorization()
	go func() {
		err := s.http.ServeTLS(s.listener, "", "")
		if !s.stopping.Load() && !errors.Is(err, http.ErrServerClosed) {
			s.fail(fmt.Errorf("serving ended: %w", err))
		}
	}()
	return nil
}

func (s *Server) closeListener() error {
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// refuse answers new requests 429, where that was asked for, until those in flight
// are finished.
func (s *Server) refuse(ctx context.Context) error {
	if !s.config.Filters.ShutdownSendRetryAfter {
		return nil
	}
	s.refusing.Store(true)
	s.endWatches()
	ctx, cancel := context.WithTimeout(ctx, s.config.RequestTimeout)
	defer cancel()
	return s.idle(ctx)
}

// idle waits until no request is served.
func (s *Server) idle(ctx context.Context) error {
	var err error
	for s.active.Load() > 0 && err == nil {
		err = sleep(ctx, activePoll)
	}
	return err
}

// drain waits for requests in flight; those that take longer are cut off.
// Connections are told to go away. http.Server.Shutdown alone would wait for a
// client that keeps an idle HTTP/2 connection, so once nothing is in flight it has
// a moment to see the last answers off.
func (s *Server) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(s.config.RequestTimeout, s.config.Filters.ShutdownWatchGrace)+drainTime)
	defer cancel()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = s.http.Shutdown(ctx) // its error is that of ctx, or of the listener that is closed already
	}()
	overdue := s.idle(ctx)
	select {
	case <-gone:
	case <-time.After(goodbyeTime):
	}
	return errors.Join(overdue, s.closeConnections())
}

func (s *Server) closeConnections() error {
	if err := s.http.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// counted counts the requests that are being served.
func (s *Server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.active.Add(1)
		defer s.active.Add(-1)
		next.ServeHTTP(w, r)
	})
}

// endWork ends background work and waits for it.
func (s *Server) endWork() error {
	ctx, cancel := context.WithTimeout(context.Background(), workTime)
	defer cancel()
	s.work.Stop(ctx)
	return nil
}

// release gives back what was opened, the last first.
func (s *Server) release() error {
	s.endWatches()
	errs := []error{s.endWork()}
	if s.listener != nil {
		errs = append(errs, s.closeListener())
	}
	errs = append(errs, s.closeAudit())
	if s.api != nil {
		errs = append(errs, s.api.close())
	}
	for _, store := range s.stores() {
		errs = append(errs, store.Close())
	}
	if s.authentication != nil && s.authentication.signer != nil {
		errs = append(errs, s.authentication.signer.Close())
	}
	if s.encryption != nil {
		errs = append(errs, s.encryption.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.release())
	}
	return errors.Join(errs...)
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
