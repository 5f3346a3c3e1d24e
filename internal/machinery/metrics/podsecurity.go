package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// PodSecurity has the metrics of the admission plug-in PodSecurity.
type PodSecurity struct {
	evaluations, exemptions, errors *prometheus.CounterVec
	// privileged are the evaluations of most pods, created and updated: those in namespaces of level privileged.
	privileged map[podSecurityRequest]prometheus.Counter
}

// podSecurityRequest has the labels that all these metrics have. The values come from the plug-in, which knows the
// operations, resources and subresources.
type podSecurityRequest = struct{ Operation, Resource, Subresource string }

// NewPodSecurity registers and returns the metrics of PodSecurity. It may be called once.
func (m *Metrics) NewPodSecurity() *PodSecurity {
	request := []string{"request_operation", "resource", "subresource"}
	s := &PodSecurity{
		evaluations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pod_security_evaluations_total",
			Help: "[ALPHA] Number of policy evaluations that occurred, not counting ignored or exempt requests.",
		}, append([]string{"decision", "policy_level", "policy_version", "mode"}, request...)),
		exemptions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pod_security_exemptions_total",
			Help: "[ALPHA] Number of exempt requests, not counting ignored or out of scope requests.",
		}, request),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pod_security_errors_total",
			Help: "[ALPHA] Number of errors preventing normal evaluation. Non-fatal errors may result in the latest " +
				"restricted profile being used for evaluation.",
		}, append([]string{"fatal"}, request...)),
		privileged: map[podSecurityRequest]prometheus.Counter{},
	}
	for _, operation := range []string{"create", "update"} {
		s.privileged[podSecurityRequest{operation, "pod", ""}] = s.evaluations.WithLabelValues(
			"allow", "privileged", "latest", "enforce", operation, "pod", "",
		)
		for _, resource := range []string{"pod", "controller"} {
			s.exemptions.WithLabelValues(operation, resource, "")
		}
	}
	m.registry.MustRegister(s.evaluations, s.exemptions, s.errors)
	return s
}

// Evaluated counts the comparison of a pod with a level.
func (s *PodSecurity) Evaluated(decision, level, version, mode string, r podSecurityRequest) {
	if level == "privileged" && mode == "enforce" {
		if c := s.privileged[r]; c != nil {
			c.Inc()
			return
		}
	}
	s.evaluations.WithLabelValues(
		decision, level, version, mode, r.Operation, r.Resource, r.Subresource,
	).Inc()
}

// Exempted counts an exempt request.
func (s *PodSecurity) Exempted(r podSecurityRequest) {
	s.exemptions.WithLabelValues(r.Operation, r.Resource, r.Subresource).Inc()
}

// Failed counts an error.
func (s *PodSecurity) Failed(fatal bool, r podSecurityRequest) {
	s.errors.WithLabelValues(strconv.FormatBool(fatal), r.Operation, r.Resource, r.Subresource).Inc()
}
