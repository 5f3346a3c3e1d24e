package podsecurity

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// counters are the Metrics of kube-apiserver.
type counters struct {
	evaluations, exemptions, errors *prometheus.CounterVec
	// privileged has the counters of evaluations in namespaces of level privileged, where most pods are. They are
	// kept because finding them by their labels for each pod costs more.
	privileged map[Request]prometheus.Counter
}

// NewMetrics registers and returns the metrics of the plug-in. It may be called once.
func NewMetrics(m *metrics.Metrics) Metrics {
	request := []string{"request_operation", "resource", "subresource"}
	s := &counters{
		evaluations: m.Counters("pod_security_evaluations_total",
			"[ALPHA] Number of policy evaluations that occurred, not counting ignored or exempt requests.",
			append([]string{"decision", "policy_level", "policy_version", "mode"}, request...)...),
		exemptions: m.Counters("pod_security_exemptions_total",
			"[ALPHA] Number of exempt requests, not counting ignored or out of scope requests.", request...),
		errors: m.Counters("pod_security_errors_total",
			"[ALPHA] Number of errors preventing normal evaluation. Non-fatal errors may result in the latest "+
				"restricted profile being used for evaluation.", append([]string{"fatal"}, request...)...),
		privileged: map[Request]prometheus.Counter{},
	}
	for _, operation := range []string{"create", "update"} {
		s.privileged[Request{operation, "pod", ""}] = s.evaluations.WithLabelValues(
			"allow", "privileged", "latest", "enforce", operation, "pod", "",
		)
		for _, resource := range []string{"pod", "controller"} {
			s.exemptions.WithLabelValues(operation, resource, "")
		}
	}
	return s
}

// Evaluated counts the comparison of a pod with a level.
func (co *counters) Evaluated(decision, level, version, mode string, r Request) {
	if level == "privileged" && mode == "enforce" {
		if c := co.privileged[r]; c != nil {
			c.Inc()
			return
		}
	}
	co.evaluations.WithLabelValues(
		decision, level, version, mode, r.Operation, r.Resource, r.Subresource,
	).Inc()
}

// Exempted counts an exempt request.
func (co *counters) Exempted(r Request) {
	co.exemptions.WithLabelValues(r.Operation, r.Resource, r.Subresource).Inc()
}

// Failed counts an error.
func (co *counters) Failed(fatal bool, r Request) {
	co.errors.WithLabelValues(strconv.FormatBool(fatal), r.Operation, r.Resource, r.Subresource).Inc()
}
