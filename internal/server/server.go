// Package server assembles the parts of the server, and starts and stops them in order.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/controller/bootstrap"
	"github.com/keelson-dev/keelson/internal/gateway/filter/inflight"
	"github.com/keelson-dev/keelson/internal/gateway/filter/requestmetrics"
	"github.com/keelson-dev/keelson/internal/gateway/filter/traffic"
	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol"
	"github.com/keelson-dev/keelson/internal/gateway/peers"
	auditevents "github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/machinery/tracing"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/server/auditing"
	"github.com/keelson-dev/keelson/internal/server/authentication"
	"github.com/keelson-dev/keelson/internal/server/authorization"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/server/chain"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/egress"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
	"github.com/keelson-dev/keelson/internal/server/identity"
	"github.com/keelson-dev/keelson/internal/server/listener"
	"github.com/keelson-dev/keelson/internal/server/logwatch"
	"github.com/keelson-dev/keelson/internal/server/members"
	"github.com/keelson-dev/keelson/internal/server/offsite"
	"github.com/keelson-dev/keelson/internal/server/reload"
	"github.com/keelson-dev/keelson/internal/server/runtimeconfig"
	"github.com/keelson-dev/keelson/internal/server/snapshots"
	"github.com/keelson-dev/keelson/internal/server/stores"
	"github.com/keelson-dev/keelson/internal/server/version"
	"github.com/keelson-dev/keelson/internal/server/zpages"
	"github.com/keelson-dev/keelson/internal/storage"
)

// auditTime limits the time that a request waits for the audit log in the blocking modes, and the time in which
// buffered events are written while the server stops.
const auditTime = 5 * time.Second

// renewEvery is the interval in which a running server checks whether its own certificates must be renewed.
const renewEvery = time.Hour

// workTime is the time that the server waits for background work to end.
const workTime = 5 * time.Second

// Server is a running server. The fields are its parts in the order in which they start.
type Server struct {
	log            *slog.Logger
	config         *settings
	ending         *ending
	work           *background.Group // runs controllers and other work that is not part of a request
	records        records
	directories    directories
	listener       *listener.Listener
	stores         *stores.Stores
	identity       *identity.Identity
	authentication *authentication.Authentication
	authorization  *authorization.Authorization
	api            *api
	controlPlane   *controlPlane
	fairness       *flowcontrol.Controller // nil if API priority and fairness is switched off
	http           *frontend
}

// records has the parts that record requests, besides metrics.
type records struct {
	traffic *traffic.Traffic   // nil unless Testing.Record
	audit   *auditing.Auditing // nil if there is no audit log
	tracer  *tracing.Tracer    // nil if no requests are traced
}

// directories are the directories that the server has locked against other processes. A field is nil if there is
// none.
type directories struct {
	data      *datadir.Lock
	snapshots *snapshots.Schedule
	copy      *offsite.Copy // the place of the copy of the data; locked only while that is exclusive
}

func (d *directories) close() error { return errors.Join(d.snapshots.Close(), d.data.Close()) }

// ending is the state of a server that stops, or that failed.
type ending struct {
	failed   chan error  // receives why the server cannot go on
	stopping atomic.Bool // Stop was called
	once     sync.Once   // guards err, the result of Stop
	err      error
}

// fail reports that the server cannot go on. Only the first reason is kept.
func (e *ending) fail(err error) {
	select {
	case e.failed <- err:
	default:
	}
}

// notStopping is a probe that fails once the server is stopping.
func (e *ending) notStopping(context.Context) error {
	if e.stopping.Load() {
		return errors.New("the server is shutting down")
	}
	return nil
}

// starting is a server during its start, with the values from which its parts are created.
type starting struct {
	*Server
	gates    features.Gates
	versions *runtimeconfig.Config
	services serviceRanges
	metrics  *metrics.Metrics
	logWatch *logwatch.Watch
	outgoing
	kinds    []*registry.Kind
	registry *registry.Registry
	// peerRecord is the record by which peers find this server, nil if there can be no peers.
	peerRecord *peers.Record
	// authenticationBuilt is closed when authentication is set.
	authenticationBuilt chan struct{}
}

// outgoing configures connections to other servers.
type outgoing struct {
	egress *egress.Selector // nil: connections are opened directly
	calls  webhook.Options  // for webhooks outside the cluster
}

// step is one step of starting or stopping.
type step struct {
	name string
	run  func() error
}

// Start starts a server and returns when it serves requests. ctx limits only the start. To end the server, call
// Stop. The configuration must be complete (see config.Config.Complete), because 0 means 0 here, not the default.
func Start(ctx context.Context, configuration config.Config, o Options) (*Server, error) {
	c := settings{Config: configuration, Options: o}
	if err := c.validate(); err != nil {
		return nil, err
	}
	options, err := metricOptions(&c.Diagnostics.Metrics)
	if err != nil {
		return nil, err
	}
	if err := c.checkFiles(); err != nil {
		return nil, err
	}
	watch := logwatch.New(time.Now)
	c.Diagnostics.Log = slog.New(watch.Handler(cmp.Or(c.Diagnostics.Log, slog.Default()).Handler()))
	s := &starting{
		Server: &Server{
			log: c.Diagnostics.Log, config: &c, ending: &ending{failed: make(chan error, 1)}, work: background.New(c.Diagnostics.Log),
		},
		metrics: metrics.New(buildLabels(), options), logWatch: watch, authenticationBuilt: make(chan struct{}),
	}
	c.files = reload.New(c.reloadEvery(), c.Diagnostics.Log, s.metrics)
	if c.Testing.Record {
		s.records.traffic = traffic.New()
	}
	for _, step := range s.steps(ctx) {
		err, began := ctx.Err(), time.Now()
		if err == nil {
			err = step.run()
		}
		if err != nil {
			return nil, errors.Join(err, s.release())
		}
		s.log.Debug("starting", "step", step.name, "took", time.Since(began))
	}
	return s.Server, nil
}

// steps are the steps of the start, in order. Steps that fail because of wrong configuration come before those that
// change anything.
func (s *starting) steps(ctx context.Context) []step {
	switch {
	case s.config.elsewhere != nil:
		return s.copiedSteps(ctx)
	case s.config.Following != nil:
		return s.followingSteps(ctx)
	}
	return []step{
		{"read the feature gates", s.readGates},
		{"read which versions are served", s.readVersions},
		{"parse the service range", s.parseServices},
		{"read how connections are opened", s.readEgress},
		{"open the place of the copy", func() (err error) {
			s.directories.copy, err = offsite.Open(ctx, &s.config.Storage, s.metrics, s.log)
			return err
		}},
		{"read the encryption configuration", s.chooseStores},
		{"open what requests are audited with", s.openAudit},
		{"read the tracing configuration", func() error { return s.openTracing(ctx) }},
		{"listen", func() error { return s.listen(ctx) }},
		{"lock the directories", s.lockDirectories},
		{"join the cluster", func() error {
			return s.stores.Join(ctx, members.Place{IP: s.listener.Advertised, URL: "https://" + s.listener.AdvertisedHostPort()})
		}},
		{"open the store, and make certificates and kinds", func() error {
			return inParallel(
				func() error { return s.stores.Open(ctx) },
				func() error { return errors.Join(s.makeKinds(), s.makeIdentity()) },
			)
		}},
		{"begin to copy the data", func() error { return s.startCopy(ctx) }},
		{"bind the resources to the store", s.bindResources},
		{"build authentication", func() error { return s.buildAuthentication(ctx) }},
		{"build authorization", s.buildAuthorization},
		{"build the API", func() error { return s.buildAPI(ctx) }},
		{"compare with other servers on the store", func() error { return s.compareReplicas(ctx) }},
		{"create the objects that every server starts with", func() error { return s.bootstrap(ctx) }},
		{"follow flow schemas and priority levels", func() error { return s.startFairness(ctx) }},
		{"start background work", func() error { return s.startWork(ctx) }},
		{"build the HTTP server", s.buildHTTP},
		{"start controllers", func() error { s.startControllers(); return nil }},
		{"serve profiles on a socket", func() error { return s.openDebugSocket(ctx) }},
		{"write the kubeconfig", func() error { return s.identity.WriteKubeconfig() }},
		{"serve", func() error { s.http.serve(s.listener, s.ending); return nil }},
	}
}

// stopSteps are the steps of the stop, in order. Each runs even if earlier ones failed.
func (s *Server) stopSteps(ctx context.Context) []step {
	return []step{
		{"fail /readyz", func() error { s.ending.stopping.Store(true); return nil }},
		{"leave the endpoints of the API", func() error { s.leaveEndpoints(ctx); return nil }},
		{"let load balancers notice", func() error { return background.Sleep(ctx, s.config.Serving.Shutdown.Delay) }},
		{"send new requests elsewhere", func() error { return s.http.refuse(ctx) }},
		{"close the listener", s.listener.Close},
		{"end watches", func() error { s.http.endLongRunning(); return nil }},
		{"finish requests in flight", func() error { return s.http.drain(ctx) }},
		{"hand on audit events", s.records.audit.Close},
		{"end background work", func() error { s.endWork(); return nil }},
		{"copy the last changes", func() error { s.directories.copy.Finish(ctx); return nil }},
		{"close the store and release the directory", s.release},
	}
}

// leaveEndpoints removes this server from the endpoints of the Service kubernetes. If that fails, because the store of several servers
// cannot be reached, the entry expires by itself.
func (s *Server) leaveEndpoints(ctx context.Context) {
	if err := s.controlPlane.leave(ctx); err != nil {
		s.log.Warn("the server did not remove itself from the endpoints of the API; its entry expires", "error", err)
	}
}

// Stop ends the server. It waits for requests in flight until ctx ends. Later calls wait for the first one and
// return the same error.
func (s *Server) Stop(ctx context.Context) error {
	s.ending.once.Do(func() {
		var errs []error
		for _, step := range s.stopSteps(ctx) {
			s.log.Debug("stopping", "step", step.name)
			if err := step.run(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", step.name, err))
			}
		}
		s.ending.err = errors.Join(errs...)
	})
	return s.ending.err
}

// release closes what was opened, in reverse order. It is also called after a failed start, so parts may be nil.
func (s *Server) release() error {
	s.http.endLongRunning()
	s.endWork()
	s.api.close()
	return errors.Join(
		s.listener.Close(),
		s.records.audit.Close(),
		s.stopTracing(),
		s.authentication.Close(),
		s.directories.copy.Close(),
		s.stores.Close(),
		s.directories.close(),
	)
}

// endWork stops the background work and waits for it.
func (s *Server) endWork() {
	ctx, cancel := context.WithTimeout(context.Background(), workTime)
	defer cancel()
	s.work.Stop(ctx)
}

// Alive returns an error if the server cannot recover by itself and must be restarted. It returns nil if only an
// etcd cluster does not respond.
func (s *Server) Alive(ctx context.Context) error { return s.http.routes.health.Alive(ctx, "etcd") }

// Reload makes the server check the configured files for changes now. Without it, the server checks every few
// seconds.
func (s *Server) Reload() { s.config.files.Wake.Fire() }

// Failed returns a channel that receives an error when the server cannot go on and must be stopped.
func (s *Server) Failed() <-chan error { return s.ending.failed }

// URL returns the URL of the server for clients on this machine, such as https://127.0.0.1:6443.
func (s *Server) URL() string { return s.listener.URL() }

// RemoteURL returns the URL for clients on other machines. It is "" if URL is also valid there, or nothing is.
func (s *Server) RemoteURL() string { return s.identity.RemoteURL }

// CA returns the certificates, as PEM, of the authorities with which clients verify the server's certificate.
func (s *Server) CA() []byte { return s.identity.Roots }

// Admin returns a client certificate of a member of system:masters.
// It is empty if the server accepts no client certificates of its own authority; see AdminToken.
func (s *Server) Admin() certs.Pair { return s.identity.Current().Admin }

// AdminToken returns a token of a member of system:masters, "" if Admin is not empty or the server has no administrator. It is
// valid until the server stops.
func (s *Server) AdminToken() string { return s.identity.AdminToken }

// Kubeconfig returns a client configuration for the administrator, nil with Authentication.NoOwnCredentials.
func (s *Server) Kubeconfig() []byte { return s.identity.Kubeconfig() }

// KubeconfigPath returns the path of a file with the content of Kubeconfig. It is "" without a data directory or
// an own administrator.
func (s *Server) KubeconfigPath() string { return s.identity.Path }

// UserToken returns a bearer token of a user, which is valid until the server stops. The user is also in the group
// system:authenticated.
func (s *Server) UserToken(name string, groups []string) string {
	return s.authentication.Local.Token(name, groups)
}

// Dial returns a new connection to a server with Serving.InProcess. It fails if the server has a socket, and after Stop.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	return s.listener.Dial(ctx)
}

// Traffic returns the requests and faults of a server with Testing.Record, nil for other servers.
func (s *Server) Traffic() *traffic.Traffic { return s.records.traffic }

func (s *starting) readGates() (err error) {
	emulated, err := readRelease(&s.config.API)
	if err != nil {
		return err
	}
	s.gates, err = features.Parse(s.config.API.FeatureGates, emulated)
	s.metrics.Describe(metrics.Version{
		Binary: version.Kubernetes, Emulated: emulated.String(), MinCompatible: emulated.MinCompatibleText(),
	}, s.gates.States)
	for _, name := range s.gates.WithoutEffect() {
		s.log.Warn("feature gate has no effect in this server", "gate", name)
	}
	if err != nil {
		return err
	}
	return validatePeers(&s.config.Network.Peers, s.gates.Enabled(features.UnknownVersionInteroperabilityProxy))
}

// readRelease returns the release that a server emulates. Its errors are those of kube-apiserver.
func readRelease(c *config.API) (release.Release, error) {
	emulated, err := release.Parse(c.EmulatedVersion, c.MinCompatibilityVersion)
	if err != nil || emulated.Emulates() {
		return emulated, err
	}
	const same = "%s cannot be set to true if the emulation version is the same as the binary version"
	switch {
	case c.EmulationForwardCompatible:
		err = config.Errorf(same, "{API.EmulationForwardCompatible}").
			OnCommandLine(same, "ServerRunOptions.EmulationForwardCompatible")
	case c.RuntimeConfigEmulationForwardCompatible:
		err = config.Errorf(same, "{API.RuntimeConfigEmulationForwardCompatible}").
			OnCommandLine(same, "ServerRunOptions.RuntimeConfigEmulationForwardCompatible")
	}
	return emulated, err
}

func (s *starting) readVersions() (err error) {
	s.versions, err = runtimeconfig.Parse(s.config.API.RuntimeConfig, runtimeconfig.Compatibility{
		Release: s.gates.Release(), Later: s.config.API.EmulationForwardCompatible,
		LaterNamed: s.config.API.RuntimeConfigEmulationForwardCompatible,
	})
	return err
}

// makeKinds makes the kinds of the built-in resources, with the versions that are served.
func (s *starting) makeKinds() error {
	s.kinds = resource.Kinds(s.gates)
	for _, k := range s.kinds {
		if k.Storage.TTLSeconds > 0 { // Events
			k.KeepFor(s.config.Storage.EventTTL)
		}
	}
	if s.config.Admission.ForbidPrivileged {
		resource.ForbidPrivileged(s.kinds)
	}
	return s.versions.Apply(s.kinds)
}

func (s *starting) parseServices() (err error) {
	s.services, err = s.config.Network.ServiceRanges()
	return err
}

// readEgress reads the configuration of the egress proxies.
func (s *starting) readEgress() (err error) {
	counts, calls := egress.NewMetrics(s.metrics), webhook.NewMetrics()
	s.metrics.Register(calls)
	if file := s.config.Network.EgressConfigFile; file != "" {
		s.egress = egress.New(counts)
		_, err = s.config.files.Load(reload.Part{
			Flag: "--egress-selector-config-file", Path: file,
			Apply: func(read filewatch.Read) error { return s.egress.Load(file, read) },
		})
	}
	s.calls = webhook.Options{Dial: s.egress.Dialer(egress.ControlPlane), Metrics: calls}
	return err
}

func (s *starting) chooseStores() (err error) {
	o := stores.Options{
		Config: &s.config.Storage, Files: s.config.files, Egress: s.egress, Metrics: s.metrics, Log: s.log, Fail: s.ending.fail,
		Clock: s.config.Testing.Clock, OpenStore: s.config.OpenStore, AdjustEngine: s.config.AdjustEngine,
		Confirm: s.directories.copy.Confirm(), Bucket: s.directories.copy.Bucket(),
		Members: func() *members.Cluster {
			return members.New(members.Options{
				Config: &s.config.Config, Flags: s.config.Diagnostics.Flags, Keys: s.keyFiles, Fail: s.ending.fail, Log: s.log,
				Roots: func() []byte { return s.identity.Roots },
			})
		},
	}
	if origin := s.config.origin; origin != nil {
		o.Image = origin.image
	}
	if f := s.config.Following; f != nil {
		o.OpenStore = func(context.Context) (storage.Store, error) { return f.Store, nil }
	}
	s.stores, err = stores.New(o)
	return err
}

func (s *starting) openAudit() (err error) {
	s.records.audit, err = auditing.Open(auditing.Options{
		Config: &s.config.Audit, Budget: cmp.Or(s.config.auditBudget, auditTime), FlushTime: cmp.Or(s.config.auditFlushTime, auditTime),
		Files: s.config.files, Calls: s.calls, Metrics: auditevents.NewMetrics(s.metrics), Log: s.log,
	})
	return err
}

// lockDirectories locks the data directory, puts the keys of a snapshot into it, and opens the directory of scheduled snapshots.
func (s *starting) lockDirectories() (err error) {
	if dir := s.config.Storage.DataDir; dir != "" {
		if s.directories.data, err = datadir.Open(dir, s.log); err != nil {
			return err
		}
		if err := s.stores.Check(); err != nil {
			return err
		}
		removeSnapshots(dir, s.log)
		if err := s.config.origin.copyKeys(dir); err != nil {
			return err
		}
	}
	s.directories.snapshots, err = snapshots.Open(&s.config.Storage, s.metrics, s.log)
	return err
}

func (s *starting) listen(ctx context.Context) (err error) {
	s.listener, err = listener.Listen(ctx, &s.config.Serving, &s.config.Network.ControlPlane, s.log)
	return err
}

func (s *starting) bindResources() (err error) {
	s.registry, err = s.stores.Registry(s.kinds)
	return err
}

func (s *starting) makeIdentity() (err error) {
	s.identity, err = identity.New(identity.Options{
		Config: &s.config.Config, Files: s.config.files, Certificates: s.config.origin.certificates(),
		RenewEvery: cmp.Or(s.config.fileReload, renewEvery), Service: s.services.kubernetes(), Advertised: s.listener.Advertised,
		URL: s.listener.URL(), RemoteURL: s.listener.RemoteURL(), Log: s.log,
	})
	if err == nil {
		s.metrics.Register(s.identity.Expiry())
	}
	return err
}

func (s *starting) buildAuthentication(ctx context.Context) (err error) {
	own := authentication.Own{
		CA: s.identity.ClientAuthority(), FrontProxyCA: s.identity.Current().FrontProxyCA, AdminToken: s.identity.AdminToken,
	}
	if origin := s.config.origin; origin != nil {
		own.Keys = origin.keys
	}
	s.authentication, err = authentication.New(ctx, authentication.Options{
		Config: &s.config.Config, FlagGiven: s.config.flagGiven, Files: s.config.files, Own: own,
		HostPort: s.listener.HostPort(), Advertised: s.listener.AdvertisedHostPort(),
		Exclusive: s.stores.Exclusive() || s.stores.Members != nil || s.config.onlyReads(),
		Registry:  s.registry, Egress: s.egress, Calls: s.calls, Metrics: s.metrics, Work: s.work, Log: s.log,
	})
	if err == nil {
		close(s.authenticationBuilt)
	}
	return err
}

func (s *starting) buildAuthorization() (err error) {
	s.authorization, err = authorization.New(authorization.Options{
		Config: &s.config.Authorization, Files: s.config.files, Gates: s.gates, HostPort: s.listener.HostPort(),
		Registry: s.registry, Calls: s.calls, Metrics: s.metrics, Work: s.work, Log: s.log,
	})
	return err
}

func (s *starting) buildAPI(ctx context.Context) (err error) {
	s.api, err = newAPI(ctx, apiOptions{
		config: s.config, gates: s.gates, services: s.services,
		addresses: addresses{local: s.listener.HostPort(), advertised: s.listener.AdvertisedHostPort()},
		kinds:     s.kinds, registry: s.registry, store: s.stores.Main,
		authentication: s.authentication, authorization: s.authorization, frontProxy: s.identity.FrontProxy,
		outgoing: s.outgoing, metrics: s.metrics, work: s.work, log: s.log,
		traffic: s.records.traffic,
	})
	if err != nil {
		return err
	}
	s.api.peers, err = s.newPeers(ctx)
	return err
}

// bootstrap creates the objects that every server starts with. At the same time it loads the definitions of custom
// resources.
func (s *starting) bootstrap(ctx context.Context) error {
	s.work.Go(customRunner, background.Forever(s.api.custom.Run))
	first := &defaults{config: s.config, store: s.stores.Main, registry: s.registry, client: s.api.client}
	key, err := first.key(ctx)
	if err != nil {
		return err
	}
	var created bool
	err = inParallel(
		func() (err error) { created, err = first.create(ctx, key); return err },
		func() error { return s.api.claims.Services.EnsurePortAllocation(ctx) },
	)
	if err != nil {
		return err
	}
	err = inParallel(
		func() error { return s.authorization.Start(ctx, s.api.client, created) },
		func() (err error) {
			s.controlPlane, err = newControlPlane(ctx, controlPlaneOptions{
				config: &s.config.Network.ControlPlane, restored: s.config.origin != nil, now: s.config.Testing.Clock.Now,
				services: s.services, address: s.listener.Advertised, port: s.listener.Port(),
				record: s.peerRecord, peerAddress: s.peerAddress(), defaultsExist: created,
				store: s.stores.Main, registry: s.registry, client: s.api.client, log: s.log,
				trust: func() bootstrap.AuthenticationTrust { return trust(s.authentication) },
			})
			return err
		},
		func() error {
			if created && s.config.origin.serves(s.config) {
				return nil
			}
			return s.api.apiServices(s.log, nil).Start(ctx)
		},
	)
	if err != nil || created {
		return err
	}
	return first.keep(ctx, key)
}

// inParallel runs functions at the same time and returns their errors.
func inParallel(run ...func() error) error {
	errs := make([]error, len(run))
	var running sync.WaitGroup
	for i, f := range run {
		running.Go(func() { errs[i] = f() })
	}
	running.Wait()
	return errors.Join(errs...)
}

// startWork starts the background work.
func (s *starting) startWork(ctx context.Context) error {
	if err := s.api.webhooks.Start(ctx); err != nil {
		return err
	}
	if err := s.startPolicies(ctx); err != nil {
		return err
	}
	services := s.work.Activity.Part("the controller of APIServices")
	services.Starting()
	s.work.Go(apiServicesRunner, background.Forever(s.api.apiServices(s.log, services).Run))
	s.work.Go(extensionsRunner, background.Forever(s.api.aggregator.Run))
	s.work.Go(controlPlaneRunner, background.Forever(s.controlPlane.keeper.Run))
	if record := s.controlPlane.record; record != nil {
		s.work.Go(peerRecordRunner, background.Forever(record.Run))
	}
	if s.api.peers != nil {
		s.work.Go(peersRunner, background.Forever(s.api.peers.Run))
	}
	s.authentication.Start(s.api.client)
	s.config.files.Start(s.work)
	if made := s.directories.snapshots; made != nil {
		made.Store, _ = s.stores.Main.(snapshots.Exporter)
		if keys := s.authentication.Keys.Own; keys != nil {
			made.MakeKeys = keys.EnsureOwnKeyFile
		}
		s.work.Go("scheduled snapshots", background.Forever(made.Run))
	}
	if s.stores.Encryption != nil {
		s.work.Go("keys of the past", background.Forever(func(ctx context.Context) { s.stores.Keys.Run(ctx, s.api.resources, s.log) }))
	}
	if s.stores.Members != nil {
		s.work.Go("members of the cluster", background.Forever(s.stores.Members.Run))
	}
	s.work.Go("own certificates", background.Forever(s.identity.Run))
	return nil
}

// keyFiles returns the files with the keys of the server, by their path in the data directory. It waits until it has all of them.
func (s *starting) keyFiles(ctx context.Context) (map[string][]byte, error) {
	select {
	case <-s.authenticationBuilt:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if keys := s.authentication.Keys.Own; keys != nil {
		if err := keys.EnsureOwnKeyFile(ctx); err != nil {
			return nil, err
		}
	}
	return snapshots.KeyFiles(s.config.Storage.DataDir, s.stores.EncryptionFile())
}

// startCopy begins to copy the store. It comes before anything is written, because writes may wait for the copy.
func (s *starting) startCopy(ctx context.Context) error {
	if s.directories.copy == nil {
		return nil
	}
	err := s.directories.copy.Attach(ctx, offsite.Source{
		Store: s.stores.Main, Name: s.listener.HostPort(), Lost: s.ending.fail, Handover: s.config.Handover,
		Keys: s.keyFiles,
	})
	if err == nil {
		s.work.Go("copy of the data", background.Forever(s.directories.copy.Run))
	}
	return err
}

func (s *starting) startControllers() {
	startControllers(controllersOptions{
		config: s.config, registry: s.registry, store: s.stores.Main, api: s.api, identity: s.identity, metrics: s.metrics,
		leader: s.controlPlane.leader, members: s.stores.Members != nil, work: s.work, log: s.log,
	})
}

func (s *starting) buildHTTP() error {
	s.putPast()
	documents, err := s.openDocuments()
	if err != nil {
		return err
	}
	limit, current := s.limitRequests()
	s.metrics.Register(inflight.Collector(current))
	if !s.config.Diagnostics.NoProfiling && s.config.Diagnostics.ContentionProfiling {
		runtime.SetBlockProfileRate(1) // every event, as kube-apiserver
	}
	options := chain.Options{
		Metrics: s.metrics, Requests: requestmetrics.NewRequests(s.metrics, s.api.resources.Has), Limit: limit,
		Authentication: s.authentication.Filter(), Audit: s.records.audit.Filter(s.kinds),
		Authorization: chain.Authorization{
			Authorizer: s.authorization, ConstrainedImpersonation: s.gates.Enabled(features.ConstrainedImpersonation),
		},
		Tracer: s.records.tracer, Copy: chain.Copy{Exclusive: s.directories.copy.Valid()},
	}
	if f := s.config.Following; f != nil {
		options.Copy.Standby = f.State
	}
	if s.records.traffic != nil {
		options.Testing = chain.Testing{Record: s.records.traffic.Record, Disturb: s.records.traffic.Disturb}
	}
	health := s.newHealth()
	options.Browsers.Unauthenticated = s.unauthenticated(health.Ready)
	var logs http.Handler
	if s.config.Diagnostics.LogsHandler {
		logs = newLogs("/var/log")
	}
	s.http, err = newFrontend(frontendOptions{
		serving: &s.config.Serving, requests: &s.config.Requests, maxStreams: s.config.maxStreams(), files: s.config.files,
		identity: s.identity, authentication: s.authentication, log: s.log,
		routes: &router{
			health:  health,
			metrics: s.metrics.Handler(), slis: s.metrics.SLIHandler(),
			discovery: s.api.discovery, openapi: documents,
			resources: s.api.resources, custom: s.api.custom.Server, aggregator: s.api.aggregator,
			peers:     s.api.peers,
			snapshots: snapshots.NewHandler(s.stores.Main, s.log),
			pages: zpages.New(zpages.Options{
				Version: version.Of(s.gates.Release()), Started: time.Now(), Now: time.Now, Flags: s.config.Diagnostics.Flags,
				Statusz: s.gates.Enabled(features.ComponentStatusz), Flagz: s.gates.Enabled(features.ComponentFlagz),
			}),
			members:  s.stores.MembersHandler(),
			issuer:   s.authentication.IssuerDiscovery(),
			fairness: s.fairness,
			debug:    debugRoutes{profiling: !s.config.Diagnostics.NoProfiling, setVerbosity: s.config.Diagnostics.SetVerbosity, logs: logs},
		},
		chain: options,
	})
	return err
}

func buildLabels() metrics.Build {
	v := version.Get()
	return metrics.Build{
		"major": v.Major, "minor": v.Minor, "git_version": v.GitVersion, "git_commit": v.GitCommit,
		"git_tree_state": v.GitTreeState, "build_date": v.BuildDate, "go_version": v.GoVersion, "compiler": v.Compiler,
		"platform": v.Platform,
	}
}
