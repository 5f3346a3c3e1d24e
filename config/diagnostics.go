package config

import "log/slog"

// Diagnostics configures the log, metrics, traces and profiles.
type Diagnostics struct {
	// Log receives the server's log. The default is slog.Default().
	Log *slog.Logger
	// SetVerbosity changes how much is logged, as PUT /debug/flags/v asks for; nil leaves that path out. It is called
	// concurrently.
	SetVerbosity func(v int) error
	// Metrics selects the exported metrics.
	Metrics Metrics
	// TracingConfigFile is a TracingConfiguration of apiserver.config.k8s.io. Without it no request is traced
	// (--tracing-config-file).
	TracingConfigFile string `flag:"tracing-config-file"`
	// NoProfiling does not serve /debug/pprof (--profiling=false).
	NoProfiling bool `flag:"!profiling"`
	// ContentionProfiling has, with profiling, the profile of what goroutines wait for, which costs time at each wait
	// (--contention-profiling).
	ContentionProfiling bool `flag:"contention-profiling"`
	// DebugSocketPath is a Unix domain socket on which /debug/pprof and /debug/flags/v are served without authentication to
	// the user of the process, also with NoProfiling; "" is none (--debug-socket-path).
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
	// AllowedLabels are the values that labels of metrics may have: "METRIC,LABEL" -> "VALUE,VALUE". Other values become
	// "unexpected". Series that have the same labels then are added up (--allow-metric-labels).
	AllowedLabels map[string]string `flag:"allow-metric-labels"`
	// AllowedLabelsFile is a YAML file with a field allowListMapping, in place of AllowedLabels
	// (--allow-metric-labels-manifest).
	AllowedLabelsFile string `flag:"allow-metric-labels-manifest"`
	// ShowHiddenFor is the minor version before the present one, such as 1.36, to show also the metrics that kube-apiserver
	// has deprecated so long ago that it hides them. Empty hides them (--show-hidden-metrics-for-version).
	ShowHiddenFor string `flag:"show-hidden-metrics-for-version"`
}
