package config

import "time"

// Values of AuditSink.Mode.
const (
	// AuditBatch buffers events and writes them in batches; requests never wait.
	AuditBatch = "batch"
	// AuditBlocking makes a request wait until its events are written.
	AuditBlocking = "blocking"
	// AuditBlockingStrict works as AuditBlocking. In addition, a request fails if the event of its arrival cannot
	// be written.
	AuditBlockingStrict = "blocking-strict"
)

// Values of AuditLog.Format.
const (
	AuditFormatLegacy = "legacy"
	AuditFormatJSON   = "json"
)

// Audit configures the audit log. Without a policy nothing is audited.
type Audit struct {
	// PolicyFile is the path of an audit.k8s.io/v1 Policy (--audit-policy-file).
	PolicyFile string `flag:"audit-policy-file"`
	// Log configures the log file of events.
	Log AuditLog `flag:"audit-log"`
	// Webhook configures the webhook that events are sent to.
	Webhook AuditWebhook `flag:"audit-webhook"`
}

// AuditLog configures the log file of events.
type AuditLog struct {
	// Path is a file, or "-" for the standard output. Empty disables the log (--audit-log-path).
	Path string `flag:"audit-log-path"`
	// MaxAge is how many days an old file is kept. The default is 366; None is no limit (--audit-log-maxage).
	MaxAge int `flag:"audit-log-maxage"`
	// MaxBackups is how many old files are kept. The default is 100; None is no limit (--audit-log-maxbackup).
	MaxBackups int `flag:"audit-log-maxbackup"`
	// MaxSize is the size in megabytes from which the file is rotated. The default is 100; with None it is not rotated
	// (--audit-log-maxsize).
	MaxSize int `flag:"audit-log-maxsize"`
	// Compress compresses old files with gzip (--audit-log-compress).
	Compress bool `flag:"audit-log-compress"`
	// Format is AuditFormatJSON, the default, or AuditFormatLegacy (--audit-log-format).
	Format string `flag:"audit-log-format"`
	// Throttle limits batches to QPS in a second, with bursts of Burst (--audit-log-batch-throttle-enable).
	Throttle bool `flag:"audit-log-batch-throttle-enable"`
	AuditSink
}

// AuditWebhook configures the webhook that events are sent to.
type AuditWebhook struct {
	// ConfigFile is the path of a kubeconfig. Empty disables the webhook (--audit-webhook-config-file).
	ConfigFile string `flag:"audit-webhook-config-file"`
	// InitialBackoff is the time after which a failed call is repeated for the first time. The default is 10 seconds
	// (--audit-webhook-initial-backoff).
	InitialBackoff time.Duration `flag:"audit-webhook-initial-backoff,audit-webhook-batch-initial-backoff"`
	// NoThrottle sends batches without a limit, instead of QPS in a second with bursts of Burst
	// (--audit-webhook-batch-throttle-enable=false).
	NoThrottle bool `flag:"!audit-webhook-batch-throttle-enable"`
	AuditSink
}

// AuditSink configures how events are passed to the log or to the webhook. Its flags begin with --audit-log or
// --audit-webhook.
type AuditSink struct {
	// Mode is AuditBatch, the default of the webhook, AuditBlocking, the default of the log, or AuditBlockingStrict
	// (--audit-log-mode, --audit-webhook-mode).
	Mode string `flag:"-mode"`
	// Version is the version of events. The only one is audit.k8s.io/v1, the default (--audit-log-version,
	// --audit-webhook-version).
	Version string `flag:"-version"`
	// BufferSize is the largest number of events that wait in AuditBatch; further events are dropped. The default is 10000
	// (--audit-log-batch-buffer-size, --audit-webhook-batch-buffer-size).
	BufferSize int `flag:"-batch-buffer-size"`
	// BatchSize is the largest number of events in a batch. The default is 1 for the log and 400 for the webhook
	// (--audit-log-batch-max-size, --audit-webhook-batch-max-size).
	BatchSize int `flag:"-batch-max-size"`
	// BatchWait is the time after which an incomplete batch is written. The default is 0 for the log and 30 seconds for the
	// webhook; None is 0 (--audit-log-batch-max-wait, --audit-webhook-batch-max-wait).
	BatchWait time.Duration `flag:"-batch-max-wait"`
	// QPS is how many batches are written in a second on average. The default is 10 for the webhook; the log has none
	// (--audit-log-batch-throttle-qps, --audit-webhook-batch-throttle-qps).
	QPS float32 `flag:"-batch-throttle-qps"`
	// Burst is how many batches may be written at once if there were none before. The default is 15 for the webhook; the log
	// has none (--audit-log-batch-throttle-burst, --audit-webhook-batch-throttle-burst).
	Burst int `flag:"-batch-throttle-burst"`
	// Truncate shortens events and splits batches that are too large (--audit-log-truncate-enabled,
	// --audit-webhook-truncate-enabled).
	Truncate bool `flag:"-truncate-enabled"`
	// MaxEventSize is the largest size of an event in bytes, with Truncate. The default is 100 KiB
	// (--audit-log-truncate-max-event-size, --audit-webhook-truncate-max-event-size).
	MaxEventSize int64 `flag:"-truncate-max-event-size"`
	// MaxBatchSize is the largest size of a batch in bytes, with Truncate. The default is 10 MiB
	// (--audit-log-truncate-max-batch-size, --audit-webhook-truncate-max-batch-size).
	MaxBatchSize int64 `flag:"-truncate-max-batch-size"`
}
