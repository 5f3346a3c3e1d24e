package admission

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Metrics has the metrics of admission. It is an Observer.
type Metrics struct {
	plugins, steps *prometheus.HistogramVec
	summary        *prometheus.SummaryVec
}

// NewMetrics registers and returns the metrics. It may be called once.
func NewMetrics(r *metrics.Metrics) *Metrics {
	buckets := []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5}
	labels := []string{"type", "operation", "rejected"}
	m := &Metrics{
		plugins: r.Histograms("apiserver_admission_controller_admission_duration_seconds", "[STABLE] Admission "+
			"controller latency histogram in seconds, identified by name and broken out for each operation and API "+
			"resource and type (validate or admit).", buckets, append([]string{"name"}, labels...)...),
		steps: r.Histograms("apiserver_admission_step_admission_duration_seconds",
			"[STABLE] Admission sub-step latency histogram in seconds, broken out for each operation and API resource "+
				"and step type (validate or admit).", buckets, labels...),
		summary: prometheus.NewSummaryVec(prometheus.SummaryOpts{
			Name:       "apiserver_admission_step_admission_duration_seconds_summary",
			Objectives: map[float64]float64{0.5: 0.05, 0.9: 0.01, 0.99: 0.001}, MaxAge: 5 * time.Hour,
			AgeBuckets: 2, // each one takes 12 KiB for each series
			Help: "[ALPHA] Admission sub-step latency summary in seconds, broken out for each operation and API resource and " +
				"step type (validate or admit).",
		}, labels),
	}
	r.Register(m.summary)
	return m
}

// Plugin implements Observer.
func (m *Metrics) Plugin(name, pass, operation string, rejected bool) func(seconds float64) {
	return m.plugins.WithLabelValues(name, pass, operation, strconv.FormatBool(rejected)).Observe
}

// Step implements Observer.
func (m *Metrics) Step(pass, operation string, rejected bool) func(seconds float64) {
	labels := []string{pass, operation, strconv.FormatBool(rejected)}
	histogram, summary := m.steps.WithLabelValues(labels...), m.summary.WithLabelValues(labels...)
	return func(seconds float64) {
		histogram.Observe(seconds)
		summary.Observe(seconds)
	}
}
