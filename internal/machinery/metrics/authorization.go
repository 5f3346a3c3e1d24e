package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// authorization has the metrics of authorization.
type authorization struct {
	attempts  map[string]prometheus.Counter
	durations map[string]prometheus.Observer
	decisions *prometheus.CounterVec

	impersonations, impersonationChecks         *prometheus.CounterVec
	impersonationSeconds, impersonationCheckSec *prometheus.HistogramVec

	webhookCalls, webhookFailOpen *prometheus.CounterVec
	webhookSeconds                *prometheus.HistogramVec
	matchErrors, matchExclusions  *prometheus.CounterVec
	matchSeconds                  *prometheus.HistogramVec
	graphSeconds                  *prometheus.HistogramVec
	reloads                       *prometheus.CounterVec
	reloadTime                    *prometheus.GaugeVec
	reloadInfo                    *prometheus.GaugeVec
}

func newAuthorization(r *lazyRegistry) *authorization {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		r.MustRegister(v)
		return v
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		r.MustRegister(v)
		return v
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		r.MustRegister(v)
		return v
	}
	milliseconds := prometheus.ExponentialBuckets(0.001, 2, 15)
	a := &authorization{
		decisions: counter("apiserver_authorization_decisions_total",
			"[ALPHA] Total number of terminal decisions made by an authorizer split by authorizer type, name, and "+
				"decision.", "type", "name", "decision"),
		impersonations: counter("apiserver_impersonation_attempts_total",
			"[ALPHA] Total number of impersonation attempts split by mode and decision.", "mode", "decision"),
		impersonationSeconds: histogram("apiserver_impersonation_attempts_duration_seconds",
			"[ALPHA] Latency of impersonation attempts in seconds split by mode and decision.", milliseconds, "mode",
			"decision"),
		impersonationChecks: counter("apiserver_impersonation_authorization_attempts_total",
			"[ALPHA] Total number of authorization checks made by the impersonation handler split by mode and "+
				"decision.", "mode", "decision"),
		impersonationCheckSec: histogram("apiserver_impersonation_authorization_attempts_duration_seconds",
			"[ALPHA] Latency of authorization checks made by the impersonation handler in seconds split by mode and "+
				"decision.", milliseconds, "mode", "decision"),
		webhookCalls: counter("apiserver_authorization_webhook_evaluations_total",
			"[ALPHA] Round-trips to authorization webhooks.", "name", "result"),
		webhookSeconds: histogram("apiserver_authorization_webhook_duration_seconds",
			"[ALPHA] Request latency in seconds.", prometheus.DefBuckets, "name", "result"),
		webhookFailOpen: counter("apiserver_authorization_webhook_evaluations_fail_open_total",
			"[ALPHA] NoOpinion results due to webhook timeout or error.", "name", "result"),
		matchErrors: counter("apiserver_authorization_match_condition_evaluation_errors_total",
			"[ALPHA] Total number of errors when an authorization webhook encounters a match condition error split by "+
				"authorizer type and name.", "type", "name"),
		matchExclusions: counter("apiserver_authorization_match_condition_exclusions_total",
			"[ALPHA] Total number of exclusions when an authorization webhook is skipped because match conditions "+
				"exclude it.", "type", "name"),
		matchSeconds: histogram("apiserver_authorization_match_condition_evaluation_seconds",
			"[ALPHA] Authorization match condition evaluation time in seconds, split by authorizer type and name.",
			[]float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25}, "type", "name"),
		graphSeconds: histogram("node_authorizer_graph_actions_duration_seconds",
			"[ALPHA] Histogram of duration of graph actions in node authorizer.", prometheus.ExponentialBuckets(0.0001, 2, 12),
			"operation"),
		reloads: counter("apiserver_authorization_config_controller_automatic_reloads_total",
			"[BETA] Total number of automatic reloads of authorization configuration split by status and apiserver "+
				"identity.", "status", "apiserver_id_hash"),
		reloadTime: gauge("apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds",
			"[BETA] Timestamp of the last automatic reload of authorization configuration split by status and apiserver "+
				"identity.", "status", "apiserver_id_hash"),
		reloadInfo: gauge("apiserver_authorization_config_controller_last_config_info",
			"[ALPHA] Information about the last applied authorization configuration with hash as label, split by "+
				"apiserver identity.", "apiserver_id_hash", "hash"),
	}
	a.attempts = resolveSeries(counter("authorization_attempts_total",
		"[ALPHA] Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', "+
			"'no-opinion' or 'error'.", "result"),
		"allowed", "denied", "no-opinion", "error")
	seconds := histogram("authorization_duration_seconds", "[ALPHA] Authorization duration in seconds broken out "+
		"by result.", milliseconds, "result")
	a.durations = map[string]prometheus.Observer{}
	for result := range a.attempts {
		a.durations[result] = seconds.WithLabelValues(result)
	}
	return a
}

// Authorization counts a decision about a request.
func (m *Metrics) Authorization(result string, took time.Duration) {
	m.authz.attempts[result].Inc()
	m.authz.durations[result].Observe(took.Seconds())
}

// AuthorizationDecision returns the counter of one authorizer's decisions: allowed or denied.
func (m *Metrics) AuthorizationDecision(kind, name, decision string) prometheus.Counter {
	return m.authz.decisions.WithLabelValues(kind, name, decision)
}

// Impersonation counts an attempt to impersonate a user.
func (m *Metrics) Impersonation(mode, decision string, took time.Duration) {
	m.authz.impersonations.WithLabelValues(mode, decision).Inc()
	m.authz.impersonationSeconds.WithLabelValues(mode, decision).Observe(took.Seconds())
}

// ImpersonationCheck counts one of the permission checks of such an attempt.
func (m *Metrics) ImpersonationCheck(mode, decision string, took time.Duration) {
	m.authz.impersonationChecks.WithLabelValues(mode, decision).Inc()
	m.authz.impersonationCheckSec.WithLabelValues(mode, decision).Observe(took.Seconds())
}

// AuthorizationWebhook counts a call of a webhook. result is success, error, timeout or
// canceled.
func (m *Metrics) AuthorizationWebhook(name, result string, took time.Duration) {
	m.authz.webhookCalls.WithLabelValues(name, result).Inc()
	m.authz.webhookSeconds.WithLabelValues(name, result).Observe(took.Seconds())
}

// AuthorizationWebhookFailOpen counts a failed call that leaves the decision to
// the next authorizer.
func (m *Metrics) AuthorizationWebhookFailOpen(name, result string) {
	m.authz.webhookFailOpen.WithLabelValues(name, result).Inc()
}

// AuthorizationMatch records the evaluation of a webhook's match conditions.
func (m *Metrics) AuthorizationMatch(name string, took time.Duration, failed, excluded bool) {
	m.authz.matchSeconds.WithLabelValues("Webhook", name).Observe(took.Seconds())
	if failed {
		m.authz.matchErrors.WithLabelValues("Webhook", name).Inc()
	}
	if excluded {
		m.authz.matchExclusions.WithLabelValues("Webhook", name).Inc()
	}
}

// NodeGraph records the time of a change of the node authorizer's graph.
func (m *Metrics) NodeGraph(operation string, took time.Duration) {
	m.authz.graphSeconds.WithLabelValues(operation).Observe(took.Seconds())
}

// AuthorizationReload counts a reload of the authorization configuration. server and config
// are hashes of the server's identity and, if the reload succeeded, of the file.
func (m *Metrics) AuthorizationReload(ok bool, server, config string) {
	status := "failure"
	if ok {
		status = "success"
		m.AuthorizationLoaded(server, config)
	}
	m.authz.reloads.WithLabelValues(status, server).Inc()
	m.authz.reloadTime.WithLabelValues(status, server).SetToCurrentTime()
}

// AuthorizationLoaded records the authorization configuration in use, by the same hashes.
func (m *Metrics) AuthorizationLoaded(server, config string) {
	m.authz.reloadInfo.Reset()
	m.authz.reloadInfo.WithLabelValues(server, config).Set(1)
}
