package metrics

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Admission has the metrics of admission. It is an admission.Observer.
type Admission struct {
	plugins, steps *prometheus.HistogramVec
	summary        *prometheus.SummaryVec
	// resolved has the series in use, in a map that is replaced when there is a new one. To look a series up by its
	// labels costs more than most plug-ins.
	resolved atomic.Pointer[map[admissionSeries]prometheus.Observer]
	adding   sync.Mutex // held while resolved is replaced
	webhooks *admissionWebhooks
	policies *admissionPolicies
}

// admissionSeries names one series of plugins; name is empty for one of steps.
type admissionSeries struct {
	name, pass, operation string
	rejected              bool
}

func newAdmission(r prometheus.Registerer) *Admission {
	buckets := []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5}
	labels := []string{"type", "operation", "rejected"}
	m := &Admission{
		plugins: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_admission_controller_admission_duration_seconds", Buckets: buckets,
			Help: "[STABLE] Admission controller latency histogram in seconds, identified by name and broken out for each " +
				"operation and API resource and type (validate or admit).",
		}, append([]string{"name"}, labels...)),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_admission_step_admission_duration_seconds", Buckets: buckets,
			Help: "[STABLE] Admission sub-step latency histogram in seconds, broken out for each operation and API resource " +
				"and step type (validate or admit).",
		}, labels),
		summary: prometheus.NewSummaryVec(prometheus.SummaryOpts{
			Name:       "apiserver_admission_step_admission_duration_seconds_summary",
			Objectives: map[float64]float64{0.5: 0.05, 0.9: 0.01, 0.99: 0.001}, MaxAge: 5 * time.Hour,
			Help: "[ALPHA] Admission sub-step latency summary in seconds, broken out for each operation and API resource and " +
				"step type (validate or admit).",
		}, labels),
	}
	m.webhooks = newAdmissionWebhooks(r)
	m.policies = newAdmissionPolicies(r)
	m.resolved.Store(&map[admissionSeries]prometheus.Observer{})
	r.MustRegister(m.plugins, m.steps, m.summary)
	return m
}

// Admission returns the metrics of admission.
func (m *Metrics) Admission() *Admission { return m.admission }

// Plugin implements admission.Observer.
func (m *Admission) Plugin(name, pass, operation string, rejected bool, took time.Duration) {
	m.series(admissionSeries{name, pass, operation, rejected}, func() prometheus.Observer {
		return m.plugins.WithLabelValues(name, pass, operation, strconv.FormatBool(rejected))
	}).Observe(took.Seconds())
}

// Step implements admission.Observer.
func (m *Admission) Step(pass, operation string, rejected bool, took time.Duration) {
	m.series(admissionSeries{"", pass, operation, rejected}, func() prometheus.Observer {
		labels := []string{pass, operation, strconv.FormatBool(rejected)}
		return both{m.steps.WithLabelValues(labels...), m.summary.WithLabelValues(labels...)}
	}).Observe(took.Seconds())
}

func (m *Admission) series(key admissionSeries, resolve func() prometheus.Observer) prometheus.Observer {
	if found := (*m.resolved.Load())[key]; found != nil {
		return found
	}
	m.adding.Lock()
	defer m.adding.Unlock()
	more := maps.Clone(*m.resolved.Load())
	found := resolve()
	more[key] = found
	m.resolved.Store(&more)
	return found
}

// both passes what it observes to two observers.
type both [2]prometheus.Observer

// Observe implements prometheus.Observer.
func (b both) Observe(seconds float64) {
	b[0].Observe(seconds)
	b[1].Observe(seconds)
}
