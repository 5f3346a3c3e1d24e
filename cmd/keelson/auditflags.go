package main

import (
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/config"
)

const throttleUsage = "Whether batching throttling is enabled. Only used in batch mode."

// auditFlags adds the flags of the audit log. They have the names, defaults and meanings of kube-apiserver.
func auditFlags(f *pflag.FlagSet, c *config.Audit) {
	f.StringVar(&c.PolicyFile, "audit-policy-file", "", "Path to the file that defines the audit policy configuration.")

	l := &c.Log
	f.StringVar(
		&l.Path, "audit-log-path", "",
		"If set, all requests coming to the apiserver will be logged to this file.  '-' means standard out.",
	)
	f.IntVar(
		&l.MaxAge, "audit-log-maxage", l.MaxAge,
		"The maximum number of days to retain old audit log files based on the timestamp encoded in their filename. Setting a value of 0 means old audit log files are not removed based on age.",
	)
	f.IntVar(
		&l.MaxBackups, "audit-log-maxbackup", l.MaxBackups,
		"The maximum number of old audit log files to retain. Setting a value of 0 will mean there's no restriction on the number of files.",
	)
	f.IntVar(
		&l.MaxSize, "audit-log-maxsize", l.MaxSize,
		"The maximum size in megabytes of the audit log file before it gets rotated. Setting to 0 disables rotation (not recommended).",
	)
	f.StringVar(
		&l.Format, "audit-log-format", l.Format,
		"Format of saved audits. \"legacy\" indicates 1-line text format for each event. \"json\" indicates structured json format. Known formats are legacy,json.",
	)
	f.StringVar(
		&l.Version, "audit-log-version", l.Version, "API group and version used for serializing audit events written to log.",
	)
	f.BoolVar(&l.Compress, "audit-log-compress", false, "If set, the rotated log files will be compressed using gzip.")
	f.BoolVar(&l.Throttle, "audit-log-batch-throttle-enable", false, throttleUsage)
	auditSinkFlags(f, "audit-log-", &l.AuditSink)

	w := &c.Webhook
	f.StringVar(
		&w.ConfigFile, "audit-webhook-config-file", "",
		"Path to a kubeconfig formatted file that defines the audit webhook configuration.",
	)
	f.DurationVar(
		&w.InitialBackoff, "audit-webhook-initial-backoff", w.InitialBackoff,
		"The amount of time to wait before retrying the first failed request.",
	)
	f.DurationVar(
		&w.InitialBackoff, "audit-webhook-batch-initial-backoff", w.InitialBackoff,
		"The amount of time to wait before retrying the first failed request.",
	)
	// MarkDeprecated only fails for an unknown flag.
	_ = f.MarkDeprecated("audit-webhook-batch-initial-backoff", "Deprecated, use --audit-webhook-initial-backoff instead.")
	f.StringVar(
		&w.Version, "audit-webhook-version", w.Version,
		"API group and version used for serializing audit events written to webhook.",
	)
	offVar(f, &w.NoThrottle, "audit-webhook-batch-throttle-enable", throttleUsage)
	auditSinkFlags(f, "audit-webhook-", &w.AuditSink)
}

func auditSinkFlags(f *pflag.FlagSet, prefix string, c *config.AuditSink) {
	f.StringVar(
		&c.Mode, prefix+"mode", c.Mode,
		"Strategy for sending audit events. Blocking indicates sending events should block server responses. Batch causes the backend to buffer and write events asynchronously. Known modes are batch,blocking,blocking-strict.",
	)
	auditBatchFlags(f, prefix+"batch-", c)
	f.BoolVar(&c.Truncate, prefix+"truncate-enabled", false, "Whether event and batch truncating is enabled.")
	f.Int64Var(
		&c.MaxBatchSize, prefix+"truncate-max-batch-size", c.MaxBatchSize,
		"Maximum size of the batch sent to the underlying backend. Actual serialized size can be several hundreds of bytes greater. If a batch exceeds this limit, it is split into several batches of smaller size.",
	)
	f.Int64Var(
		&c.MaxEventSize, prefix+"truncate-max-event-size", c.MaxEventSize,
		"Maximum size of the audit event sent to the underlying backend. If the size of an event is greater than this number, first request and response are removed, and if this doesn't reduce the size enough, event is discarded.",
	)
}

func auditBatchFlags(f *pflag.FlagSet, prefix string, c *config.AuditSink) {
	f.IntVar(
		&c.BufferSize, prefix+"buffer-size", c.BufferSize,
		"The size of the buffer to store events before batching and writing. Only used in batch mode.",
	)
	f.IntVar(&c.BatchSize, prefix+"max-size", c.BatchSize, "The maximum size of a batch. Only used in batch mode.")
	f.DurationVar(
		&c.BatchWait, prefix+"max-wait", c.BatchWait,
		"The amount of time to wait before force writing the batch that hadn't reached the max size. Only used in batch mode.",
	)
	f.Float32Var(
		&c.QPS, prefix+"throttle-qps", c.QPS, "Maximum average number of batches per second. Only used in batch mode.",
	)
	f.IntVar(
		&c.Burst, prefix+"throttle-burst", c.Burst,
		"Maximum number of requests sent at the same moment if ThrottleQPS was not utilized before. Only used in batch mode.",
	)
}

// controlPlaneFlags adds the flags for how the server presents itself in the cluster.
func controlPlaneFlags(f *pflag.FlagSet, c *config.ControlPlane) {
	f.StringVar(
		&c.AdvertiseAddress, "advertise-address", "",
		"The IP address on which to advertise the apiserver to members of the cluster. This address must be reachable by the rest of the cluster. If blank, the --bind-address will be used. If --bind-address is unspecified, the host's default interface will be used.",
	)
	f.StringVar(
		&c.EndpointReconciler, "endpoint-reconciler-type", c.EndpointReconciler,
		"Use an endpoint reconciler (master-count, lease, none) master-count is deprecated, and will be removed in a future version.",
	)
	f.IntVar(
		&c.ServiceNodePort, "kubernetes-service-node-port", 0,
		"If non-zero, the Kubernetes master service (which apiserver creates/maintains) will be of type NodePort, using this as the value of the port. If zero, the Kubernetes master service will be of type ClusterIP.",
	)
}

// filterFlags adds the flags of the filters of requests.
func filterFlags(f *pflag.FlagSet, c *config.Config) {
	f.StringSliceVar(
		&c.Requests.CORSAllowedOrigins, "cors-allowed-origins", nil,
		"List of allowed origins for CORS, comma separated. An allowed origin can be a regular expression to support subdomain matching. If this list is empty CORS will not be enabled. Please ensure each expression matches the entire hostname by anchoring to the start with '^' or including the '//' prefix, and by anchoring to the end with '$' or including the ':' port separator suffix. Examples of valid expressions are '//example\\.com(:|$)' and '^https://example\\.com(:|$)'",
	)
	f.StringSliceVar(
		&c.Requests.HSTSDirectives, "strict-transport-security-directives", nil,
		"List of directives for HSTS, comma separated. If this list is empty, then HSTS directives will not be added. Example: 'max-age=31536000,includeSubDomains,preload'",
	)
	f.Float64Var(
		&c.Requests.GoawayChance, "goaway-chance", 0,
		"To prevent HTTP/2 clients from getting stuck on a single apiserver, randomly close a connection (GOAWAY). The client's other in-flight requests won't be affected, and the client will reconnect, likely landing on a different apiserver after going through the load balancer again. This argument sets the fraction of requests that will be sent a GOAWAY. Clusters with single apiservers, or which don't use a load balancer, should NOT enable this. Min is 0 (off), Max is .02 (1/50 requests); .001 (1/1000) is a recommended starting point.",
	)
	f.StringVar(&c.Diagnostics.TracingConfigFile, "tracing-config-file", "", "File with apiserver tracing configuration.")
	f.DurationVar(
		&c.Serving.Shutdown.WatchGrace, "shutdown-watch-termination-grace-period", 0,
		"This option, if set, represents the maximum amount of grace period the apiserver will wait for active watch request(s) to drain during the graceful server shutdown window.",
	)
	f.BoolVar(
		&c.Serving.Shutdown.SendRetryAfter, "shutdown-send-retry-after", false,
		"If true the HTTP Server will continue listening until all non long running request(s) in flight have been drained, during this window all incoming requests will be rejected with a status code 429 and a 'Retry-After' response header, in addition 'Connection: close' response header is set in order to tear down the TCP connection when idle.",
	)
}
