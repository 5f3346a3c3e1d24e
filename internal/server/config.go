package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/clock"
	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/controller/serviceallocator"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// Storage backends.
const (
	StorageEmbedded = "embedded"
	StorageMemory   = "memory"
	StorageEtcd     = "etcd"
)

// Config configures a server. Start from DefaultConfig.
type Config struct {
	// DataDir has the data, the server's certificates and its kubeconfig. It is created if it is missing, and only
	// one process may use it. With StorageMemory it may be empty; nothing is then written to disk.
	DataDir string
	// Storage is StorageEmbedded, StorageMemory or StorageEtcd.
	Storage string
	// Etcd configures the clusters of StorageEtcd.
	Etcd EtcdConfig

	// HistoryWindow is how long the embedded engine keeps old revisions. For that time a list can be continued and a
	// watch resumed.
	HistoryWindow time.Duration
	// AdjustEngine, unless it is nil, changes the options of the embedded engine before it
	// is opened. Tests put failing disks under it.
	AdjustEngine func(*embedded.Options)
	// OpenStore, unless it is nil, opens another store in place of the embedded engine. It
	// is for measurements of what is around the store.
	OpenStore func(context.Context) (storage.Store, error)

	// BindAddress is the IP address to listen on, SecurePort the port; 0 picks a
	// free one.
	BindAddress string
	SecurePort  int

	// InProcess is a server without a socket: BindAddress, SecurePort and the certificates of Serving are not used, and
	// clients in the same program connect with Server.Dial, without TLS. Client certificates are not accepted; the
	// administrator has a token. Nothing outside of the program can reach the server.
	InProcess bool

	// Authentication configures authentication.
	Authentication AuthenticationConfig
	// Authorization configures authorization.
	Authorization AuthorizationConfig

	// Metrics say which metrics are shown.
	Metrics metrics.Options

	// Admission configures the admission plug-ins.
	Admission AdmissionConfig

	// Audit configures the audit log.
	Audit AuditConfig
	// Filters configures the filters of requests.
	Filters FiltersConfig

	// EgressSelectorConfigFile is an EgressSelectorConfiguration: through which proxies
	// the server opens connections. Empty opens all directly.
	EgressSelectorConfigFile string

	// ControlPlane configures how the server presents itself in the cluster.
	ControlPlane ControlPlaneConfig

	// TokenAuthFile is a CSV file of token, user, uid and groups.
	TokenAuthFile string
	// ClientCAFile has the authorities whose client certificates are accepted. If it is empty, the server accepts those
	// of its own authority.
	ClientCAFile string
	// NoOwnCredentials accepts only the credentials that the configuration names, as kube-apiserver does: the server then
	// has no client authority, no administrator with a kubeconfig, and no front proxy certificate of its own, and keys of
	// service account tokens have to be configured. It makes a serving certificate only if none is configured.
	NoOwnCredentials bool
	// Serving configures the HTTPS server.
	Serving ServingConfig

	// ServiceClusterIPRange has the ranges of service addresses in CIDR notation,
	// one of each IP family at most, separated by a comma.
	ServiceClusterIPRange string
	// ServiceNodePortRange is the range of node ports: first-last, both inclusive.
	ServiceNodePortRange string

	// EncryptionProviderConfig is a file that says how values are encrypted in the
	// store; empty stores them as they are. With EncryptionReload its changes are
	// followed.
	EncryptionProviderConfig string
	EncryptionReload         bool

	// EventTTL is how long an Event is kept after its last write, in whole seconds; 0 keeps it.
	EventTTL time.Duration
	// GarbageCollection is false if nothing collects the dependents of deleted objects: deletions then ignore the
	// propagation policy, and set no finalizers for the garbage collector.
	GarbageCollection bool

	// AllowPrivileged accepts pods with privileged containers.
	AllowPrivileged bool

	// Aggregation configures how requests are forwarded to extension API servers.
	Aggregation AggregationConfig
	// Peers configures how requests are forwarded to other servers on the same etcd cluster.
	Peers PeersConfig

	// Connections configures the connections to nodes, pods and services.
	Connections ConnectionsConfig

	// Controllers are the controllers of kube-controller-manager that run in the server (see Controllers), in the syntax
	// of its flag of that name: "*" is all, "name" switches one on, "-name" off, and "-*" is none. Empty is all of them,
	// or on a store that others write to (etcd) serviceaccount-controller and resourcequota-controller alone. They pause
	// while a kube-controller-manager runs.
	Controllers []string
	// DefaultServiceAccounts makes the service account "default" of each new
	// namespace. kube-controller-manager does it too, where it runs.
	DefaultServiceAccounts bool
	// QuotaUsage keeps the status of ResourceQuotas: their limits, and what objects use.
	// kube-controller-manager does it too, where it runs.
	QuotaUsage bool
	// PolicyTypeChecks checks the types in the expressions of ValidatingAdmissionPolicies, and writes what is wrong to
	// their status. It is off by default, because a client that updates a policy right after creating it does not expect
	// that the policy has changed meanwhile. kube-controller-manager does it too, where it runs.
	PolicyTypeChecks bool

	// FeatureGates are values of the form Name=true.
	FeatureGates []string
	// RuntimeConfig are values of the form apps/v1=true: the built-in versions and resources that are served or not.
	RuntimeConfig []string

	// RequestTimeout bounds a request that is not long-running. A watch without a
	// timeout of its own lasts between MinRequestTimeout and twice that.
	RequestTimeout, MinRequestTimeout time.Duration
	// MaxRequestsInFlight bounds requests that read, MaxMutatingRequestsInFlight
	// those that change something, at a time; 0 is no limit. With PriorityAndFairness only their sum matters, which must
	// not be 0.
	MaxRequestsInFlight, MaxMutatingRequestsInFlight int
	// PriorityAndFairness divides the requests in flight by FlowSchemas and PriorityLevelConfigurations, and queues those
	// that have to wait. Otherwise a request above the limit is refused.
	PriorityAndFairness bool
	// ShutdownDelay is how long the server goes on serving after it was told to
	// stop, while /readyz already fails.
	ShutdownDelay time.Duration
	// LivezGracePeriod is how long after the start /livez does not fail: what is under
	// way then is assumed to go well.
	LivezGracePeriod time.Duration
	// DeleteCollectionWorkers is how many objects one request that deletes a collection deletes at a time.
	DeleteCollectionWorkers int
	// LogsHandler serves the files of /var/log below /logs/.
	LogsHandler bool
	// DebugSocketPath is a Unix domain socket on which /debug/pprof and /debug/flags/v are served without authentication to
	// the user of the process, also with Profiling off; "" is none.
	DebugSocketPath string
	// Profiling serves /debug/pprof. With ContentionProfiling it has the profile of what goroutines wait for, which costs
	// time at each wait.
	Profiling, ContentionProfiling bool

	// fileReload is how often files are checked for changes; 0 means the default. Tests set it.
	fileReload time.Duration

	// files are the parts of the configuration that are read from files. Start sets it.
	files *reloads

	// Flags are the options that the process was started with, by name, for /flagz.
	Flags map[string]string

	// now is the clock of the budgets of webhooks; nil means time.Now. Tests set it.
	now func() time.Time

	// Testing records the requests of clients and lets the program that runs the server add faults: see Server.Traffic.
	Testing bool

	// Clock is a clock that a test moves; nil is that of the system. It is the time of API objects: their timestamps, how
	// long Events and leases are kept, the history window, and how long tokens and the leases of controllers hold.
	// Connections, timeouts of requests, certificates and logs use the clock of the system.
	Clock *clock.Clock

	// origin is the snapshot from which the server is started; nil for a server of its own.
	origin *Snapshot

	// judges are further plug-ins of admission. They are for tests.
	judges []admission.Plugin

	// Log receives the server's log; nil is slog.Default().
	Log *slog.Logger
	// SetVerbosity changes how much is logged, as PUT /debug/flags/v asks for; nil
	// leaves that path out. It is called concurrently.
	SetVerbosity func(v int) error
}

// DefaultConfig returns what `keelson serve` does without flags.
func DefaultConfig() Config {
	return Config{
		DataDir: "./keelson-data", Storage: StorageEmbedded, Etcd: defaultEtcd(),
		HistoryWindow: 5 * time.Minute,
		BindAddress:   "127.0.0.1", SecurePort: 6443,
		ServiceClusterIPRange:  "10.0.0.0/24",
		ServiceNodePortRange:   serviceallocator.DefaultNodePorts.String(),
		DefaultServiceAccounts: true, QuotaUsage: true,
		Aggregation:    AggregationConfig{RejectRedirects: true},
		Authorization:  DefaultAuthorization(),
		Admission:      DefaultAdmission(),
		Authentication: DefaultAuthentication(),
		Audit:          defaultAudit(),
		Connections:    defaultConnections(),
		ControlPlane:   ControlPlaneConfig{EndpointReconciler: ReconcilerLease},
		RequestTimeout: time.Minute, MinRequestTimeout: 30 * time.Minute,
		MaxRequestsInFlight: 400, MaxMutatingRequestsInFlight: 200, PriorityAndFairness: true,
		Profiling: true, EventTTL: time.Hour, GarbageCollection: true, AllowPrivileged: true,
		DeleteCollectionWorkers: 1,
	}
}

// KubeAPIServerConfig returns what kube-apiserver does without flags. It has to be completed as for kube-apiserver: without
// etcd servers, an issuer of service account tokens and keys for it, Start fails.
func KubeAPIServerConfig() Config {
	c := DefaultConfig()
	c.DataDir, c.Storage, c.NoOwnCredentials = "", StorageEtcd, true
	c.BindAddress, c.Serving.CertDir = "0.0.0.0", "/var/run/kubernetes"
	c.ServiceClusterIPRange = "" // the command warns, and takes that of DefaultConfig
	c.Authentication.ServiceAccounts.Issuers = nil
	c.Authorization.Modes = nil
	c.Controllers = []string{"-*"}
	c.AllowPrivileged = false
	return c
}

// maxStreams is how many requests one HTTP/2 connection may have at a time: no more
// than half of those that are served, so that one connection cannot hold all.
func (c *Config) maxStreams() int {
	if c.Serving.HTTP2MaxStreams > 0 {
		return c.Serving.HTTP2MaxStreams
	}
	streams := maxStreams
	for _, limit := range []int{c.MaxRequestsInFlight, c.MaxMutatingRequestsInFlight} {
		if limit > 0 {
			streams = min(streams, max(limit/2, minStreams))
		}
	}
	return streams
}

// validate returns what is wrong with the configuration by itself.
func (c *Config) validate() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch c.Storage {
	case StorageEmbedded, StorageMemory:
		if len(c.Etcd.Servers) > 0 {
			add("--etcd-servers needs --storage=%s", StorageEtcd)
		}
	case StorageEtcd:
		errs = append(errs, c.Etcd.validate()...)
	default:
		add("--storage must be %s, %s or %s, not %q", StorageEmbedded, StorageMemory, StorageEtcd, c.Storage)
	}
	if c.DataDir == "" && c.Storage == StorageEmbedded {
		add("--data-dir must not be empty")
	}
	if c.HistoryWindow <= 0 {
		add("--history-window must be greater than 0")
	}
	if net.ParseIP(c.BindAddress) == nil {
		add("--bind-address must be an IP address, not %q", c.BindAddress)
	}
	errs = append(errs, c.Serving.validate())
	errs = append(errs, c.Connections.validate()...)
	if c.SecurePort < 0 || c.SecurePort > 65535 {
		add("--secure-port must be between 0 and 65535, not %d", c.SecurePort)
	}
	if c.EncryptionReload && c.EncryptionProviderConfig == "" {
		add("--encryption-provider-config-automatic-reload must be set with --encryption-provider-config")
	}
	errs = append(errs, c.Authentication.validate()...)
	if c.NoOwnCredentials {
		errs = append(errs, c.Authentication.ServiceAccounts.validateKeys()...)
	}
	errs = append(errs, c.Authorization.validate()...)
	if c.Admission.WebhookBudget < 0 {
		add("--admission-webhook-budget must not be negative")
	}
	errs = append(errs, c.Audit.validate()...)
	errs = append(errs, c.Filters.validate()...)
	errs = append(errs, c.validateControllers()...)
	errs = append(errs, c.ControlPlane.validate()...)
	errs = append(errs, c.Aggregation.validate(), c.validateFairness())
	if file := c.EgressSelectorConfigFile; file != "" {
		if _, err := os.Stat(file); err != nil {
			add("egress-selector-config-file %s does not exist", file)
		}
	}
	if c.DeleteCollectionWorkers < 1 {
		add("--delete-collection-workers must be at least 1")
	}
	if c.EventTTL < 0 {
		add("--event-ttl must not be negative")
	}
	if c.RequestTimeout <= 0 {
		add("--request-timeout must be greater than 0")
	}
	if c.LivezGracePeriod < 0 {
		add("--livez-grace-period can not be a negative value")
	}
	if c.MinRequestTimeout < 0 || c.MaxRequestsInFlight < 0 || c.MaxMutatingRequestsInFlight < 0 || c.ShutdownDelay < 0 {
		add("--min-request-timeout, --max-requests-inflight, --max-mutating-requests-inflight and " +
			"--shutdown-delay-duration must not be negative")
	}
	if _, err := ParseServiceRanges(c.ServiceClusterIPRange); err != nil {
		add("--service-cluster-ip-range: %w", err)
	}
	if _, err := serviceallocator.ParsePortRange(c.ServiceNodePortRange); err != nil {
		add("--service-node-port-range: %w", err)
	}
	return errors.Join(errs...)
}

// ParseServiceRanges reads a ServiceClusterIPRange. The first range is the one
// that the kubernetes Service is in.
func ParseServiceRanges(s string) ([]netip.Prefix, error) {
	const fewestAddressBits, mostAddressBits = 3, 20 // at least 8 addresses; an allocation map that fits in memory
	parts := strings.Split(s, ",")
	if len(parts) > 2 {
		return nil, errors.New("want one range, or one of each IP family")
	}
	var out []netip.Prefix
	for _, part := range parts {
		p, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%q is not a range in CIDR notation", part)
		}
		bits := p.Addr().BitLen() - p.Bits()
		if bits < fewestAddressBits {
			return nil, fmt.Errorf("%s is too small: it must have at least %d IP addresses", p, 1<<fewestAddressBits)
		}
		if bits > mostAddressBits {
			return nil, fmt.Errorf("%s is too large: the prefix must be /%d or longer", p, p.Addr().BitLen()-mostAddressBits)
		}
		out = append(out, p.Masked())
	}
	if len(out) == 2 && out[0].Addr().Is4() == out[1].Addr().Is4() {
		return nil, errors.New("the two ranges must be of different IP families")
	}
	return out, nil
}
