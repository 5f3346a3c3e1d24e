package reload

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// fileMetrics has the metrics of files that are applied again when they change. The label flag is the flag that names the file.
type fileMetrics struct {
	total            *prometheus.CounterVec
	inEffect, lastAt *prometheus.GaugeVec
}

func newMetrics(m *metrics.Metrics) *fileMetrics {
	return &fileMetrics{
		total: m.Counters("keelson_file_reloads_total", "Number of changes of a configured file, by the flag that "+
			"names it and by status: success, or failure if the files cannot be used.", "flag", "status"),
		inEffect: m.Gauges("keelson_file_in_effect", "Whether the content of a configured file is in effect (1), or "+
			"that from before because the file cannot be used (0).", "flag"),
		lastAt: m.Gauges("keelson_file_reload_last_timestamp_seconds",
			"Time of the last change of a configured file, by status, in seconds since the epoch.", "flag", "status"),
	}
}

// followed records that the file of a flag is followed from now on. Its content is in effect. Several files of one flag
// share their series.
func (m *fileMetrics) followed(flag string) {
	m.total.WithLabelValues(flag, "success")
	m.total.WithLabelValues(flag, "failure")
	m.inEffect.WithLabelValues(flag).Set(1)
}

// reloaded records an attempt to apply a change of a file of a flag. inEffect reports whether all files of the flag are
// in effect now.
func (m *fileMetrics) reloaded(flag string, ok, inEffect bool) {
	status, value := metrics.Status(ok), 0.0
	if inEffect {
		value = 1
	}
	m.total.WithLabelValues(flag, status).Inc()
	m.lastAt.WithLabelValues(flag, status).SetToCurrentTime()
	m.inEffect.WithLabelValues(flag).Set(value)
}
