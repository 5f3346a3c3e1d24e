package config

import "log/slog"

// Diagnostics configures the log, metrics, traces and profiles.
type Diagnostics struct {
	// Log receives the server's log. The default is slog.Default().
	Log *slog.Logger
	// SetVerbosity sets the verbosity of the log to the value in a PUT /debug/flags/v. If it is nil, that path is
	// not served. It may be called concurrently.
	SetVerbosity func(v int) error
	// Metrics selects the exported metrics.
	Metrics Metrics
	// TracingConfigFile is a TracingConfiguration of apiserver.config.k8s.io. Without it no request is traced
	// (--tracing-config-file).
	TracingConfigFile string `flag:"tracing-config-file"`
	// NoProfiling does not serve /debug/pprof (--profiling=false).
	NoProfiling bool `flag:"!profiling"`
	// ContentionProfiling adds, if profiling is on, the profile of the times for which goroutines wait. Recording
	// it costs time at each wait (--contention-profiling).
	ContentionProfiling bool `flag:"contention-profiling"`
	// DebugSocketPath is a Unix domain socket that serves /debug/pprof and /debug/flags/v, also with NoProfiling.
	// Only the user of the process can connect, without authentication. "" means no socket (--debug-socket-path).
	DebugSocketPath string `flag:"debug-socket-path"`
	// LogsHandler serves the files of /var/log below /logs/ (--enable-logs-handler).
	LogsHandler bool `flag:"enable-logs-handler"`
	// Flags are the options that the process was started with, by name, for /flagz.
	Flags map[string]string
}

// Metrics selects the exported metrics.
type Metrics struct {
	// Disabled are the names of metrics that are not shown. It has precedence over ShowHiddenFor (--disabled-metrics).
	Disabled []string `flag:"disabled-metrics"`
	// AllowedLabels maps labels of metrics to their allowed values: "METRIC,LABEL" -> "VALUE,VALUE". Other values
	// are replaced by "unexpected". Series whose labels are then equal are added up (--allow-metric-labels).
	AllowedLabels map[string]string `flag:"allow-metric-labels"`
	// AllowedLabelsFile is a YAML file with a field allowListMapping, in place of AllowedLabels
	// (--allow-metric-labels-manifest).
	AllowedLabelsFile string `flag:"allow-metric-labels-manifest"`
	// ShowHiddenFor is empty, or the minor version before the present one, such as 1.36. With that version, the
	// server also exports metrics that kube-apiserver hides because it deprecated them long ago
	// (--show-hidden-metrics-for-version).
	ShowHiddenFor string `flag:"show-hidden-metrics-for-version"`
}
