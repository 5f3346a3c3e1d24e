package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagGroup is a group of flags in the help.
type flagGroup struct{ title, names string }

// keelsonGroup has the flags that kube-apiserver does not have.
const keelsonGroup = "Keelson"

// flagGroups returns the groups of kube-apiserver in the order of its help.
func flagGroups() []flagGroup {
	return []flagGroup{
		{"Generic", "advertise-address cors-allowed-origins emulated-version emulation-forward-compatible " +
			"external-hostname feature-gates goaway-chance livez-grace-period max-mutating-requests-inflight " +
			"max-requests-inflight min-compatibility-version min-request-timeout request-timeout " +
			"runtime-config-emulation-forward-compatible shutdown-delay-duration shutdown-send-retry-after " +
			"shutdown-watch-termination-grace-period storage-initialization-timeout " +
			"strict-transport-security-directives"},
		{"Etcd", "delete-collection-workers enable-garbage-collector encryption-provider-config " +
			"encryption-provider-config-automatic-reload etcd-cafile etcd-certfile etcd-compaction-interval " +
			"etcd-count-metric-poll-period etcd-db-metric-poll-interval etcd-healthcheck-timeout etcd-keyfile " +
			"etcd-prefix etcd-readycheck-timeout etcd-servers etcd-servers-overrides lease-reuse-duration-seconds " +
			"storage-backend storage-media-type watch-cache watch-cache-sizes"},
		{"Secure serving", "bind-address cert-dir disable-http2-serving http2-max-streams-per-connection permit-address-sharing " +
			"permit-port-sharing secure-port tls-cert-file tls-cipher-suites tls-curve-preferences " +
			"tls-min-version tls-private-key-file tls-sni-cert-key"},
		{"Auditing", "audit-log-batch-buffer-size audit-log-batch-max-size audit-log-batch-max-wait " +
			"audit-log-batch-throttle-burst audit-log-batch-throttle-enable audit-log-batch-throttle-qps " +
			"audit-log-compress audit-log-format audit-log-maxage audit-log-maxbackup audit-log-maxsize " +
			"audit-log-mode audit-log-path audit-log-truncate-enabled audit-log-truncate-max-batch-size " +
			"audit-log-truncate-max-event-size audit-log-version audit-policy-file " +
			"audit-webhook-batch-buffer-size audit-webhook-batch-max-size audit-webhook-batch-max-wait " +
			"audit-webhook-batch-throttle-burst audit-webhook-batch-throttle-enable " +
			"audit-webhook-batch-throttle-qps audit-webhook-config-file audit-webhook-initial-backoff " +
			"audit-webhook-mode audit-webhook-truncate-enabled audit-webhook-truncate-max-batch-size " +
			"audit-webhook-truncate-max-event-size audit-webhook-version"},
		{"Features", "contention-profiling debug-socket-path enable-priority-and-fairness profiling"},
		{"Authentication", "anonymous-auth api-audiences authentication-config authentication-token-webhook-cache-ttl " +
			"authentication-token-webhook-config-file authentication-token-webhook-version client-ca-file " +
			"enable-bootstrap-token-auth oidc-ca-file oidc-client-id oidc-groups-claim oidc-groups-prefix " +
			"oidc-issuer-url oidc-required-claim oidc-signing-algs oidc-username-claim oidc-username-prefix " +
			"requestheader-allowed-names requestheader-client-ca-file requestheader-extra-headers-prefix " +
			"requestheader-group-headers requestheader-uid-headers requestheader-username-headers " +
			"service-account-extend-token-expiration service-account-issuer service-account-jwks-uri " +
			"service-account-key-file service-account-lookup service-account-max-token-expiration token-auth-file"},
		{"Authorization", "authorization-config authorization-mode authorization-policy-file " +
			"authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl " +
			"authorization-webhook-config-file authorization-webhook-version"},
		{"API enablement", "runtime-config"},
		{"Egress selector", "egress-selector-config-file"},
		{"Admission", "admission-control admission-control-config-file default-not-ready-toleration-seconds " +
			"default-unreachable-toleration-seconds disable-admission-plugins enable-admission-plugins"},
		{"Metrics", "allow-metric-labels allow-metric-labels-manifest disabled-metrics show-hidden-metrics-for-version"},
		{"Logs", "log-flush-frequency log-json-info-buffer-size log-json-split-stream log-text-info-buffer-size " +
			"log-text-split-stream logging-format v vmodule"},
		{"Traces", "tracing-config-file"},
		{"Misc", "aggregator-reject-forwarding-redirect allow-privileged coordinated-leadership-lease-duration " +
			"coordinated-leadership-renew-deadline coordinated-leadership-retry-period enable-aggregator-routing " +
			"enable-logs-handler endpoint-reconciler-type event-ttl kubelet-certificate-authority " +
			"kubelet-client-certificate kubelet-client-key kubelet-preferred-address-types kubelet-timeout " +
			"kubernetes-service-node-port max-connection-bytes-per-sec peer-advertise-ip peer-advertise-port " +
			"peer-ca-file proxy-client-cert-file proxy-client-key-file service-account-signing-endpoint " +
			"service-account-signing-key-file service-cluster-ip-range service-node-port-range"},
		{"Global", "help version"},
	}
}

// groupFlags returns the flags by the title of their group.
func groupFlags(f *pflag.FlagSet) map[string]*pflag.FlagSet {
	of := map[string]string{}
	out := map[string]*pflag.FlagSet{keelsonGroup: pflag.NewFlagSet(keelsonGroup, pflag.ContinueOnError)}
	for _, g := range flagGroups() {
		out[g.title] = pflag.NewFlagSet(g.title, pflag.ContinueOnError)
		for name := range strings.FieldsSeq(g.names) {
			of[name] = g.title
		}
	}
	f.VisitAll(func(flag *pflag.Flag) {
		title, found := of[flag.Name]
		if !found {
			title = keelsonGroup
		}
		out[title].AddFlag(flag)
	})
	return out
}

// groupHelp makes the help of a command show its flags by group, and its error of an unknown flag name the nearest one.
func groupHelp(c *cobra.Command) {
	usage := func(c *cobra.Command, out io.Writer) {
		fmt.Fprintf(out, "Usage:\n  %s\n", c.UseLine())
		if c.HasAvailableSubCommands() {
			fmt.Fprint(out, "\nCommands:\n")
			for _, sub := range c.Commands() {
				fmt.Fprintf(out, "  %-16s %s\n", sub.Name(), sub.Short)
			}
		}
		if c.Flags().Lookup("secure-port") == nil { // it does not serve
			fmt.Fprintf(out, "\nFlags:\n%s", c.Flags().FlagUsages())
			return
		}
		groups := groupFlags(c.Flags())
		for _, g := range append(flagGroups(), flagGroup{title: keelsonGroup}) {
			if set := groups[g.title]; set.HasAvailableFlags() {
				fmt.Fprintf(out, "\n%s flags:\n\n%s", g.title, set.FlagUsages())
			}
		}
	}
	c.SetUsageFunc(func(c *cobra.Command) error { usage(c, c.OutOrStderr()); return nil })
	c.SetHelpFunc(func(c *cobra.Command, _ []string) {
		fmt.Fprintf(c.OutOrStdout(), "%s\n\n", cmp.Or(c.Long, c.Short))
		usage(c, c.OutOrStdout())
	})
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		name, found := strings.CutPrefix(err.Error(), "unknown flag: --")
		if near := nearestFlag(c.Flags(), name); found && near != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, near)
		}
		return err
	})
}

// nearestFlag returns the flag whose name is most like another one, "" if none is.
func nearestFlag(f *pflag.FlagSet, name string) string {
	best, least := "", len(name)/3+1
	f.VisitAll(func(flag *pflag.Flag) {
		d := distance(name, flag.Name)
		if len(name) > 3 && strings.HasPrefix(flag.Name, name) {
			d = min(d, 1)
		}
		if !flag.Hidden && d < least {
			best, least = flag.Name, d
		}
	})
	return best
}

// distance returns how many characters have to be inserted, removed or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // row[j] is the distance between a[:i] and b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = slices.Min([]int{replaced, row[j] + 1, row[j+1] + 1})
		}
	}
	return row[len(b)]
}
