package main

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/internal/server"
)

// storageFlags are about where the objects are and how they are stored.
func storageFlags(f *pflag.FlagSet, config *server.Config) {
	f.StringVar(
		&config.DataDir, "data-dir", config.DataDir, "directory of the data, the server's certificates and its kubeconfig",
	)
	f.StringVar(
		&config.Storage, "storage", config.Storage,
		"where objects are kept: embedded (in the data directory), memory (gone at the end) or etcd",
	)
	etcdFlags(f, &config.Etcd)
	f.DurationVar(
		&config.HistoryWindow, "history-window", config.HistoryWindow,
		"how long what was changed or deleted can still be read and watched; then it is compacted",
	)
	f.DurationVar(
		&config.EventTTL, "event-ttl", config.EventTTL, "how long an Event is kept after its last write; 0 keeps it",
	)
	f.BoolVar(
		&config.GarbageCollection, "enable-garbage-collector", config.GarbageCollection,
		"whether dependents of deleted objects are collected, here or by kube-controller-manager; "+
			"if not, deletions ignore the propagation policy",
	)
	f.BoolVar(
		&config.AllowPrivileged, "allow-privileged", config.AllowPrivileged,
		"accept pods with privileged containers",
	)
	f.StringVar(
		&config.EncryptionProviderConfig, "encryption-provider-config", "",
		"file of the EncryptionConfiguration that says how objects are encrypted in the store",
	)
	f.BoolVar(
		&config.EncryptionReload, "encryption-provider-config-automatic-reload", false,
		"follow changes of --encryption-provider-config",
	)
}

// servingFlags are about the connections of clients.
func servingFlags(f *pflag.FlagSet, config *server.Config) {
	f.StringVar(&config.BindAddress, "bind-address", config.BindAddress, "IP address to listen on")
	f.IntVar(&config.SecurePort, "secure-port", config.SecurePort, "port to serve HTTPS on; 0 picks a free one")
	f.DurationVar(
		&config.RequestTimeout, "request-timeout", config.RequestTimeout,
		"how long a request may take that is not long-running",
	)
	f.IntVar(
		&config.MaxRequestsInFlight, "max-requests-inflight", config.MaxRequestsInFlight,
		"reading requests served at a time; 0 is no limit. With --enable-priority-and-fairness only the sum of this and --max-mutating-requests-inflight matters, which must be positive",
	)
	f.IntVar(
		&config.MaxMutatingRequestsInFlight, "max-mutating-requests-inflight", config.MaxMutatingRequestsInFlight,
		"writing requests served at a time; see --max-requests-inflight",
	)
	f.BoolVar(
		&config.PriorityAndFairness, "enable-priority-and-fairness", config.PriorityAndFairness,
		"queue and dispatch requests by FlowSchemas and PriorityLevelConfigurations, instead of refusing those above the limits",
	)
	f.DurationVar(
		&config.ShutdownDelay, "shutdown-delay-duration", 0,
		"how long to go on serving, with /readyz failing, when told to stop",
	)
	f.DurationVar(&config.LivezGracePeriod, "livez-grace-period", 0, "how long after its start /livez does not fail")
	f.IntVar(
		&config.DeleteCollectionWorkers, "delete-collection-workers", config.DeleteCollectionWorkers,
		"how many objects a request that deletes a collection deletes at a time",
	)
	f.BoolVar(
		&config.LogsHandler, "enable-logs-handler", false,
		"serve the files of /var/log below /logs/ (DEPRECATED: Log handler functionality is deprecated)",
	)
	f.StringVar(
		&config.DebugSocketPath, "debug-socket-path", "",
		"Unix domain socket on which /debug/pprof and /debug/flags/v are served without authentication, to the user of the process",
	)
	f.BoolVar(&config.Profiling, "profiling", config.Profiling, "serve /debug/pprof")
	f.BoolVar(
		&config.ContentionProfiling, "contention-profiling", false,
		"with --profiling, also profile what goroutines wait for",
	)
}

// networkFlags are about Services, and about the connections that the server opens.
func networkFlags(f *pflag.FlagSet, config *server.Config) {
	f.StringVar(
		&config.ServiceClusterIPRange, "service-cluster-ip-range", config.ServiceClusterIPRange,
		"range of service addresses in CIDR notation; two, separated by a comma, for dual stack",
	)
	f.StringVar(
		&config.ServiceNodePortRange, "service-node-port-range", config.ServiceNodePortRange,
		"range of ports that Services get on every node: first-last, both inclusive",
	)
	f.StringVar(
		&config.EgressSelectorConfigFile, "egress-selector-config-file", "",
		"file of the EgressSelectorConfiguration that says through which proxies the server opens connections to webhooks, issuers and the like",
	)
	f.BoolVar(
		&config.Aggregation.ByEndpoints, "enable-aggregator-routing", false,
		"call extension API servers and webhooks that are Services at their endpoints rather than at the cluster IP, for machines without kube-proxy",
	)
	f.BoolVar(
		&config.Aggregation.RejectRedirects, "aggregator-reject-forwarding-redirect", config.Aggregation.RejectRedirects,
		"answer 502 to redirects of extension API servers instead of sending them to the client",
	)
	f.StringVar(
		&config.Aggregation.ProxyClientCertFile, "proxy-client-cert-file", "",
		"certificate by which extension API servers recognize this server; its authority should be that of --requestheader-client-ca-file",
	)
	f.StringVar(
		&config.Aggregation.ProxyClientKeyFile, "proxy-client-key-file", "", "private key of --proxy-client-cert-file",
	)
}

// connectionFlags are about the connections to nodes, pods and services.
func connectionFlags(f *pflag.FlagSet, c *server.ConnectionsConfig) {
	f.StringVar(
		&c.KubeletCertificateAuthority, "kubelet-certificate-authority", "",
		"PEM file of the authorities of the certificates of kubelets; without it they are not verified",
	)
	f.StringVar(
		&c.KubeletClientCertificate, "kubelet-client-certificate", "",
		"PEM file of the certificate that the server shows to kubelets; its changes are followed",
	)
	f.StringVar(&c.KubeletClientKey, "kubelet-client-key", "", "PEM file of the key of --kubelet-client-certificate")
	f.StringSliceVar(
		&c.KubeletPreferredAddressTypes, "kubelet-preferred-address-types", c.KubeletPreferredAddressTypes,
		"types of the addresses by which nodes are reached, the preferred one first",
	)
	f.DurationVar(&c.KubeletTimeout, "kubelet-timeout", c.KubeletTimeout, "how long connecting to a kubelet may take")
	f.IntVar(&c.KubeletPort, "kubelet-port", c.KubeletPort, "port of kubelets whose node does not name one")
	// MarkDeprecated only fails for an unknown flag.
	_ = f.MarkDeprecated("kubelet-port", "kubelet-port is deprecated and will be removed.")
	f.Int64Var(
		&c.MaxBytesPerSecond, "max-connection-bytes-per-sec", 0,
		"bytes per second in each direction of a connection to a pod, node or service that is upgraded to another protocol; "+
			"0 is no limit",
	)
}

// controllerFlags switch controllers of kube-controller-manager on and off that run in the server.
func controllerFlags(f *pflag.FlagSet, config *server.Config) {
	f.StringSliceVar(
		&config.Controllers, "controllers", config.Controllers,
		"controllers of kube-controller-manager that run in the server while no kube-controller-manager does: * is all, "+
			"foo switches foo on, -foo switches it off, -* is none; all of them by default, with --etcd-servers "+
			"serviceaccount-controller and resourcequota-controller. Controllers: "+strings.Join(server.Controllers(), ", "),
	)
	f.BoolVar(
		&config.DefaultServiceAccounts, "default-service-accounts", config.DefaultServiceAccounts,
		"make the service account \"default\" of each new namespace, as kube-controller-manager does",
	)
	f.BoolVar(
		&config.QuotaUsage, "quota-usage", config.QuotaUsage,
		"count what objects use of resource quotas, as kube-controller-manager does",
	)
	f.BoolVar(
		&config.PolicyTypeChecks, "policy-type-checks", config.PolicyTypeChecks,
		"check the types in the expressions of validating admission policies, as kube-controller-manager does",
	)
}
