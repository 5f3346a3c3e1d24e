package main

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server"
)

// storageFlags are about where the objects are and how they are stored.
func storageFlags(f *pflag.FlagSet, conf *config.Config) {
	f.StringVar(
		&conf.Storage.DataDir, "data-dir", conf.Storage.DataDir, "directory of the data, the server's certificates and its kubeconfig",
	)
	f.StringVar(
		&conf.Storage.Backend, "storage", conf.Storage.Backend,
		"where objects are kept: embedded (in the data directory), memory (gone at the end) or etcd",
	)
	etcdFlags(f, &conf.Storage.Etcd)
	f.DurationVar(
		&conf.Storage.HistoryWindow, "history-window", conf.Storage.HistoryWindow,
		"how long what was changed or deleted can still be read and watched; then it is compacted",
	)
	f.DurationVar(
		&conf.Storage.EventTTL, "event-ttl", conf.Storage.EventTTL, "how long an Event is kept after its last write; 0 keeps it",
	)
	offVar(
		f, &conf.Controllers.NoGarbageCollection, "enable-garbage-collector",
		"whether dependents of deleted objects are collected, here or by kube-controller-manager; "+
			"if not, deletions ignore the propagation policy",
	)
	offVar(
		f, &conf.Admission.ForbidPrivileged, "allow-privileged",
		"accept pods with privileged containers",
	)
	f.StringVar(
		&conf.Storage.EncryptionConfigFile, "encryption-provider-config", "",
		"file of the EncryptionConfiguration that says how objects are encrypted in the store",
	)
	f.BoolVar(
		&conf.Storage.EncryptionReload, "encryption-provider-config-automatic-reload", false,
		"follow changes of --encryption-provider-config",
	)
}

// servingFlags are about the connections of clients.
func servingFlags(f *pflag.FlagSet, conf *config.Config) {
	f.StringVar(&conf.Serving.Address, "bind-address", conf.Serving.Address, "IP address to listen on")
	f.IntVar(&conf.Serving.Port, "secure-port", conf.Serving.Port, "port to serve HTTPS on; 0 picks a free one")
	f.DurationVar(
		&conf.Requests.Timeout, "request-timeout", conf.Requests.Timeout,
		"how long a request may take that is not long-running",
	)
	f.IntVar(
		&conf.Requests.MaxInFlight, "max-requests-inflight", conf.Requests.MaxInFlight,
		"reading requests served at a time; 0 is no limit. With --enable-priority-and-fairness only the sum of this and --max-mutating-requests-inflight matters, which must be positive",
	)
	f.IntVar(
		&conf.Requests.MaxMutatingInFlight, "max-mutating-requests-inflight", conf.Requests.MaxMutatingInFlight,
		"writing requests served at a time; see --max-requests-inflight",
	)
	offVar(
		f, &conf.Requests.NoPriorityAndFairness, "enable-priority-and-fairness",
		"queue and dispatch requests by FlowSchemas and PriorityLevelConfigurations, instead of refusing those above the limits",
	)
	f.DurationVar(
		&conf.Serving.Shutdown.Delay, "shutdown-delay-duration", 0,
		"how long to go on serving, with /readyz failing, when told to stop",
	)
	f.DurationVar(&conf.Serving.LivezGracePeriod, "livez-grace-period", 0, "how long after its start /livez does not fail")
	f.IntVar(
		&conf.Requests.DeleteCollectionWorkers, "delete-collection-workers", conf.Requests.DeleteCollectionWorkers,
		"how many objects a request that deletes a collection deletes at a time",
	)
	f.BoolVar(
		&conf.Diagnostics.LogsHandler, "enable-logs-handler", false,
		"serve the files of /var/log below /logs/ (DEPRECATED: Log handler functionality is deprecated)",
	)
	f.StringVar(
		&conf.Diagnostics.DebugSocketPath, "debug-socket-path", "",
		"Unix domain socket on which /debug/pprof and /debug/flags/v are served without authentication, to the user of the process",
	)
	offVar(f, &conf.Diagnostics.NoProfiling, "profiling", "serve /debug/pprof")
	f.BoolVar(
		&conf.Diagnostics.ContentionProfiling, "contention-profiling", false,
		"with --profiling, also profile what goroutines wait for",
	)
}

// networkFlags are about Services, and about the connections that the server opens.
func networkFlags(f *pflag.FlagSet, conf *config.Config) {
	f.StringVar(
		&conf.Network.ServiceClusterIPRange, "service-cluster-ip-range", conf.Network.ServiceClusterIPRange,
		"range of service addresses in CIDR notation; two, separated by a comma, for dual stack",
	)
	f.StringVar(
		&conf.Network.ServiceNodePortRange, "service-node-port-range", conf.Network.ServiceNodePortRange,
		"range of ports that Services get on every node: first-last, both inclusive",
	)
	f.StringVar(
		&conf.Network.EgressConfigFile, "egress-selector-config-file", "",
		"file of the EgressSelectorConfiguration that says through which proxies the server opens connections to webhooks, issuers and the like",
	)
	f.BoolVar(
		&conf.Network.Aggregation.ByEndpoints, "enable-aggregator-routing", false,
		"call extension API servers and webhooks that are Services at their endpoints rather than at the cluster IP, for machines without kube-proxy",
	)
	offVar(
		f, &conf.Network.Aggregation.PassRedirects, "aggregator-reject-forwarding-redirect",
		"answer 502 to redirects of extension API servers instead of sending them to the client",
	)
	f.StringVar(
		&conf.Network.Aggregation.ProxyClientCertFile, "proxy-client-cert-file", "",
		"certificate by which extension API servers recognize this server; its authority should be that of --requestheader-client-ca-file",
	)
	f.StringVar(
		&conf.Network.Aggregation.ProxyClientKeyFile, "proxy-client-key-file", "", "private key of --proxy-client-cert-file",
	)
}

// connectionFlags are about the connections to nodes, pods and services.
func connectionFlags(f *pflag.FlagSet, c *config.Connections) {
	f.StringVar(
		&c.KubeletCAFile, "kubelet-certificate-authority", "",
		"PEM file of the authorities of the certificates of kubelets; without it they are not verified",
	)
	f.StringVar(
		&c.KubeletCertFile, "kubelet-client-certificate", "",
		"PEM file of the certificate that the server shows to kubelets; its changes are followed",
	)
	f.StringVar(&c.KubeletKeyFile, "kubelet-client-key", "", "PEM file of the key of --kubelet-client-certificate")
	f.StringSliceVar(
		&c.KubeletAddressTypes, "kubelet-preferred-address-types", c.KubeletAddressTypes,
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
func controllerFlags(f *pflag.FlagSet, conf *config.Config) {
	f.StringSliceVar(
		&conf.Controllers.Names, "controllers", conf.Controllers.Names,
		"controllers of kube-controller-manager that run in the server while no kube-controller-manager does: * is all, "+
			"foo switches foo on, -foo switches it off, -* is none; all of them by default, with --etcd-servers "+
			"serviceaccount-controller and resourcequota-controller. Controllers: "+strings.Join(server.Controllers(), ", "),
	)
	offVar(
		f, &conf.Controllers.NoDefaultServiceAccounts, "default-service-accounts",
		"make the service account \"default\" of each new namespace, as kube-controller-manager does",
	)
	offVar(
		f, &conf.Controllers.NoQuotaUsage, "quota-usage",
		"count what objects use of resource quotas, as kube-controller-manager does",
	)
	f.BoolVar(
		&conf.Controllers.PolicyTypeChecks, "policy-type-checks", conf.Controllers.PolicyTypeChecks,
		"check the types in the expressions of validating admission policies, as kube-controller-manager does",
	)
}
