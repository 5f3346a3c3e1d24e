package config

import "time"

const (
	defaultDataDir   = "./keelson-data"
	defaultIssuer    = "https://kubernetes.default.svc"
	auditVersion     = "audit.k8s.io/v1"
	defaultTolerance = 300 // seconds

	defaultUsernameClaim    = "sub"
	defaultSigningAlgorithm = "RS256"
)

// Default returns the configuration of `keelson serve` without flags, except for Serving.Console. All defaults are
// set: data in ./keelson-data, HTTPS on 127.0.0.1:6443. A server with Config{} is the same.
func Default() Config { return Config{}.Complete() }

// InMemory returns the configuration of a server that writes nothing to disk and listens on a free port of the
// loopback interface.
func InMemory() Config {
	c := Config{Storage: Storage{Backend: StorageMemory}}.Complete()
	c.Serving.Port = FreePort
	return c
}

// KubeAPIServer returns the configuration of kube-apiserver without flags. As with kube-apiserver, the caller must
// add some fields: without etcd servers, an issuer of service account tokens and keys for it, keelson.Start fails.
func KubeAPIServer() Config {
	c := Config{
		Storage:        Storage{Backend: StorageEtcd},
		Serving:        Serving{Address: "0.0.0.0", TLS: TLS{CertDir: "/var/run/kubernetes"}},
		Authentication: Authentication{NoOwnCredentials: true},
		Authorization:  Authorization{Modes: []string{ModeAlwaysAllow}},
		Admission:      Admission{ForbidPrivileged: true},
		Controllers:    Controllers{Names: []string{"-*"}, NoWorkloadNotices: true},
	}
	return c.Complete()
}

// Complete returns the configuration in which fields with the zero value have their defaults, and None is 0. Use
// it to inspect a configuration, and before Validate. keelson.Start completes its configuration itself. Pass it
// the original: after Complete, a 0 that was None cannot be distinguished from a field that was not set.
func (c Config) Complete() Config {
	c.Storage.complete()
	c.Serving.complete()
	c.Authentication.complete()
	c.Authorization.complete()
	number(&c.Admission.NotReadyTolerationSeconds, defaultTolerance)
	number(&c.Admission.UnreachableTolerationSeconds, defaultTolerance)
	c.Audit.complete()
	c.Requests.complete()
	c.Network.complete()
	return c
}

func (s *Storage) complete() {
	if m := &s.Members; m.Init || m.Join != "" || m.Reset {
		text(&s.Backend, StorageMembers)
	}
	text(&s.Backend, StorageEmbedded)
	if s.Backend == StorageEmbedded || s.Backend == StorageMembers {
		text(&s.DataDir, defaultDataDir)
	}
	text(&s.LocalState, LocalStateOn)
	positive(&s.HistoryWindow, 5*time.Minute)
	number(&s.EventTTL, time.Hour)
	positive(&s.Snapshots.Keep, 14)
	text(&s.Backup.Mode, BackupAsync)
	positive(&s.Backup.Interval, time.Second)
	positive(&s.Backup.LockDuration, 10*time.Second)
	positive(&s.Backup.Retention, 7*24*time.Hour)
	e := &s.Etcd
	text(&e.Prefix, "/registry")
	number(&e.CompactionInterval, 5*time.Minute)
	number(&e.DBMetricPollInterval, 30*time.Second)
	positive(&e.LeaseReuse, time.Minute)
	positive(&e.HealthcheckTimeout, 2*time.Second)
	positive(&e.ReadycheckTimeout, 2*time.Second)
}

func (s *Serving) complete() {
	text(&s.Address, "127.0.0.1")
	number(&s.Port, 6443)
}

func (a *Authentication) complete() {
	if !a.NoOwnCredentials {
		list(&a.ServiceAccounts.Issuers, defaultIssuer)
	}
	text(&a.OIDC.UsernameClaim, defaultUsernameClaim)
	list(&a.OIDC.SigningAlgorithms, defaultSigningAlgorithm)
	text(&a.Webhook.Version, "v1beta1")
	number(&a.Webhook.CacheTTL, 2*time.Minute)
}

func (a *Authorization) complete() {
	list(&a.Modes, ModeNode, ModeRBAC)
	text(&a.Webhook.Version, "v1beta1")
	number(&a.Webhook.AllowedTTL, 5*time.Minute)
	number(&a.Webhook.RefusedTTL, 30*time.Second)
}

func (a *Audit) complete() {
	const maxAge, maxBackups, maxSize, batchSize = 366, 100, 100, 400
	number(&a.Log.MaxAge, maxAge)
	number(&a.Log.MaxBackups, maxBackups)
	number(&a.Log.MaxSize, maxSize)
	text(&a.Log.Format, AuditFormatJSON)
	a.Log.AuditSink.complete(AuditBlocking, 1, 0)
	positive(&a.Webhook.InitialBackoff, 10*time.Second)
	a.Webhook.AuditSink.complete(AuditBatch, batchSize, 30*time.Second)
	positive(&a.Webhook.QPS, 10)
	positive(&a.Webhook.Burst, 15)
}

func (s *AuditSink) complete(mode string, batchSize int, batchWait time.Duration) {
	const bufferSize, maxEventSize, maxBatchSize = 10000, 100 << 10, 10 << 20
	text(&s.Mode, mode)
	text(&s.Version, auditVersion)
	positive(&s.BufferSize, bufferSize)
	positive(&s.BatchSize, batchSize)
	number(&s.BatchWait, batchWait)
	positive(&s.MaxEventSize, maxEventSize)
	positive(&s.MaxBatchSize, maxBatchSize)
}

func (r *Requests) complete() {
	const maxInFlight, maxMutating = 400, 200
	positive(&r.Timeout, time.Minute)
	positive(&r.MinWatchTimeout, 30*time.Minute)
	number(&r.MaxInFlight, maxInFlight)
	number(&r.MaxMutatingInFlight, maxMutating)
	positive(&r.DeleteCollectionWorkers, 1)
}

func (n *Network) complete() {
	const kubeletPort = 10250
	text(&n.ServiceClusterIPRange, "10.0.0.0/24")
	text(&n.ServiceNodePortRange, "30000-32767")
	text(&n.ControlPlane.EndpointReconciler, ReconcilerLease)
	c := &n.Connections
	list(&c.KubeletAddressTypes, "Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP")
	number(&c.KubeletTimeout, 5*time.Second)
	positive(&c.KubeletPort, kubeletPort)
}

func text(field *string, standard string) {
	if *field == "" {
		*field = standard
	}
}

func list(field *[]string, standard ...string) {
	if len(*field) == 0 {
		*field = standard
	}
}

// positive sets the default of a field that is 0. None (a negative number) has no meaning for such a field: positive
// leaves it as it is, and validation refuses it.
func positive[T ~int | ~int64 | ~float32](field *T, standard T) {
	if *field == 0 {
		*field = standard
	}
}

// number sets the default of a field for which None means 0.
func number[T ~int | ~int64](field *T, standard T) {
	switch *field {
	case 0:
		*field = standard
	case None:
		*field = 0
	}
}
