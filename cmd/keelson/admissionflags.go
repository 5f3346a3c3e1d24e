package main

import (
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/config"
)

// admissionFlags adds the flags of admission.
func admissionFlags(f *pflag.FlagSet, c *config.Admission) {
	f.StringSliceVar(
		&c.Enable, "enable-admission-plugins", nil, "admission plug-ins that run beside those that run by default",
	)
	f.StringSliceVar(
		&c.Disable, "disable-admission-plugins", nil, "admission plug-ins that do not run, although they run by default",
	)
	f.StringSliceVar(
		&c.Only, "admission-control", nil, "all admission plug-ins that run, in place of those that run by default",
	)
	_ = f.MarkDeprecated( // the flag was added above
		"admission-control",
		"Use --enable-admission-plugins or --disable-admission-plugins instead. Will be removed in a future version.",
	)
	f.StringVar(
		&c.ConfigFile, "admission-control-config-file", "",
		"file of the AdmissionConfiguration with the configurations of single admission plug-ins",
	)
	f.Int64Var(
		&c.NotReadyTolerationSeconds, "default-not-ready-toleration-seconds", c.NotReadyTolerationSeconds,
		"how long a pod tolerates that its node is not ready, unless the pod has such a toleration",
	)
	f.Int64Var(
		&c.UnreachableTolerationSeconds, "default-unreachable-toleration-seconds", c.UnreachableTolerationSeconds,
		"how long a pod tolerates that its node is unreachable, unless the pod has such a toleration",
	)
	f.DurationVar(
		&c.WebhookBudget, "admission-webhook-budget", 0,
		"how long failing calls of one admission webhook with failurePolicy Ignore may take together in a minute; beyond "+
			"it the webhook is skipped, and tried again every 30 seconds; 0 skips none. not a flag of kube-apiserver",
	)
}
