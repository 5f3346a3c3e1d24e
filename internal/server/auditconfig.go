package server

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/keelson-dev/keelson/internal/machinery/audit/sink"
	"github.com/keelson-dev/keelson/internal/machinery/audit/sink/log"
	"github.com/keelson-dev/keelson/internal/machinery/audit/sink/webhook"
)

// AuditConfig configures the audit log. Without a policy nothing is audited.
type AuditConfig struct {
	// PolicyFile is the path of an audit.k8s.io/v1 Policy.
	PolicyFile string
	Log        AuditLogConfig
	Webhook    AuditWebhookConfig

	// budget is how long a request waits for a log or webhook in the blocking modes. farewell is how long buffered
	// events are written while the server stops.
	budget, farewell time.Duration
}

// AuditLogConfig configures the log file of events.
type AuditLogConfig struct {
	// Path is a file, or "-" for the standard output. Empty disables the log.
	Path string
	// MaxAge is in days, MaxSize in megabytes, MaxBackups a number of files. 0 means no limit.
	MaxAge, MaxBackups, MaxSize int
	Compress                    bool
	// Format is log.FormatJSON or log.FormatLegacy.
	Format  string
	Version string
	AuditSinkConfig
}

// AuditWebhookConfig configures the webhook that events are sent to.
type AuditWebhookConfig struct {
	// ConfigFile is the path of a kubeconfig. Empty disables the webhook.
	ConfigFile     string
	InitialBackoff time.Duration
	Version        string
	AuditSinkConfig
}

// AuditSinkConfig configures how events are passed to the log or webhook.
type AuditSinkConfig struct {
	// Mode is one of sink.Modes.
	Mode  string
	Batch sink.BatchOptions // in sink.ModeBatch
	// Truncate limits the size of events and batches, in bytes.
	Truncate                   bool
	MaxEventSize, MaxBatchSize int64
}

// auditVersion is the only supported version of events.
const auditVersion = "audit.k8s.io/v1"

func defaultAudit() AuditConfig {
	const (
		maxEventSize, maxBatchSize = 100 << 10, 10 << 20
		bufferSize                 = 10000
	)
	return AuditConfig{
		budget: 5 * time.Second, farewell: 5 * time.Second,
		Log: AuditLogConfig{
			MaxAge: 366, MaxBackups: 100, MaxSize: 100, Format: log.FormatJSON, Version: auditVersion,
			AuditSinkConfig: AuditSinkConfig{
				Mode:         sink.ModeBlocking,
				Batch:        sink.BatchOptions{BufferSize: bufferSize, MaxBatchSize: 1},
				MaxEventSize: maxEventSize, MaxBatchSize: maxBatchSize,
			},
		},
		Webhook: AuditWebhookConfig{
			InitialBackoff: webhook.DefaultBackoff, Version: auditVersion,
			AuditSinkConfig: AuditSinkConfig{
				Mode: sink.ModeBatch,
				Batch: sink.BatchOptions{
					BufferSize: bufferSize, MaxBatchSize: 400, MaxBatchWait: 30 * time.Second,
					Throttle: true, QPS: 10, Burst: 15, Concurrent: true,
				},
				MaxEventSize: maxEventSize, MaxBatchSize: maxBatchSize,
			},
		},
	}
}

// validate returns the errors of the configuration that can be found without reading files.
func (c *AuditConfig) validate() []error {
	var errs []error
	if c.Log.Path != "" {
		errs = append(errs, c.Log.AuditSinkConfig.validate("log", c.Log.Version)...)
		if formats := log.Formats(); !slices.Contains(formats, c.Log.Format) {
			errs = append(errs, fmt.Errorf("invalid audit log format %s, allowed formats are %q",
				c.Log.Format, strings.Join(formats, ",")))
		}
		for _, n := range []struct {
			flag  string
			value int
		}{{"maxage", c.Log.MaxAge}, {"maxbackup", c.Log.MaxBackups}, {"maxsize", c.Log.MaxSize}} {
			if n.value < 0 {
				errs = append(errs, fmt.Errorf("--audit-log-%s %v can't be a negative number", n.flag, n.value))
			}
		}
	}
	if c.Webhook.ConfigFile != "" {
		errs = append(errs, c.Webhook.AuditSinkConfig.validate("webhook", c.Webhook.Version)...)
	}
	return errs
}

func (c *AuditSinkConfig) validate(name, version string) []error {
	var errs []error
	if err := c.validateBatch(name); err != nil {
		errs = append(errs, err)
	}
	if c.MaxEventSize <= 0 {
		errs = append(errs, fmt.Errorf("invalid audit truncate %s max event size %v, must be a positive number",
			name, c.MaxEventSize))
	} else if c.MaxBatchSize < c.MaxEventSize {
		errs = append(errs, fmt.Errorf("invalid audit truncate %s max batch size %v, must be greater than max event "+
			"size (%v)", name, c.MaxBatchSize, c.MaxEventSize))
	}
	if gv, err := schema.ParseGroupVersion(version); err != nil {
		errs = append(errs, err)
	} else if gv != auditv1.SchemeGroupVersion {
		errs = append(errs, fmt.Errorf("invalid group version, allowed versions are %q",
			[]schema.GroupVersion{auditv1.SchemeGroupVersion}))
	}
	return errs
}

// validateBatch returns the first error.
func (c *AuditSinkConfig) validateBatch(name string) error {
	modes := sink.Modes()
	switch b := c.Batch; {
	case !slices.Contains(modes, c.Mode):
		return fmt.Errorf("invalid audit %s mode %s, allowed modes are %q", name, c.Mode, strings.Join(modes, ","))
	case c.Mode != sink.ModeBatch:
		return nil // what follows is not used
	case b.BufferSize <= 0:
		return fmt.Errorf("invalid audit batch %s buffer size %v, must be a positive number", name, b.BufferSize)
	case b.MaxBatchSize <= 0:
		return fmt.Errorf("invalid audit batch %s max batch size %v, must be a positive number", name, b.MaxBatchSize)
	case b.Throttle && b.QPS <= 0:
		return fmt.Errorf("invalid audit batch %s throttle QPS %v, must be a positive number", name, b.QPS)
	case b.Throttle && b.Burst <= 0:
		return fmt.Errorf("invalid audit batch %s throttle burst %v, must be a positive number", name, b.Burst)
	}
	return nil
}
