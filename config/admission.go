package config

import "time"

// Admission configures which admission plug-ins run, and how.
type Admission struct {
	// Enable names plug-ins that run in addition to those that run by default (--enable-admission-plugins).
	Enable []string `flag:"enable-admission-plugins"`
	// Disable names plug-ins that do not run, although they run by default. A name may not be in both lists
	// (--disable-admission-plugins).
	Disable []string `flag:"disable-admission-plugins"`
	// Only, unless it is nil, names all plug-ins that run; Enable and Disable must be empty then (--admission-control).
	Only []string `flag:"admission-control"`
	// ConfigFile is an AdmissionConfiguration (apiserver.config.k8s.io/v1) with the configurations of single plug-ins
	// (--admission-control-config-file).
	ConfigFile string `flag:"admission-control-config-file"`
	// NotReadyTolerationSeconds is how long a pod stays on a node that is not ready, unless the pod's own tolerations say
	// otherwise. The default is 300; None is 0 seconds (--default-not-ready-toleration-seconds).
	NotReadyTolerationSeconds int64 `flag:"default-not-ready-toleration-seconds"`
	// UnreachableTolerationSeconds is how long a pod stays on a node that is not reachable, unless the pod's own tolerations
	// say otherwise. The default is 300; None is 0 seconds (--default-unreachable-toleration-seconds).
	UnreachableTolerationSeconds int64 `flag:"default-unreachable-toleration-seconds"`
	// WebhookBudget is the total time in a minute that failing calls of one webhook with failurePolicy Ignore may
	// take. Above it, the webhook is skipped for a while. With 0, the default, no webhook is skipped
	// (--admission-webhook-budget).
	WebhookBudget time.Duration `flag:"admission-webhook-budget"`
	// ForbidPrivileged refuses pods with privileged containers (--allow-privileged=false).
	ForbidPrivileged bool `flag:"!allow-privileged"`
}
