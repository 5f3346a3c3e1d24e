package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// ofProcess returns the metrics of the process and of the Go runtime. They are the same for all servers of the process, and
// the collectors keep only their buffers between two reads, no other state.
var ofProcess = sync.OnceValue(func() []prometheus.Collector {
	return []prometheus.Collector{
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
})

// Feature is a feature gate.
type Feature struct {
	Name string
	// Stage is ALPHA, BETA or DEPRECATED; empty for a stable one.
	Stage   string
	Enabled bool
}

// Version contains the labels of the metric version_info: the version of Kubernetes whose API is served, as
// MAJOR.MINOR.PATCH, the emulated version, and the oldest version of a compatible control plane, as MAJOR.MINOR.
type Version struct{ Binary, Emulated, MinCompatible string }

// Describe registers the metrics about the version and the feature gates, which do not change while the server
// runs. It may be called once. features is called whenever metrics are read.
func (m *Metrics) Describe(v Version, features func() []Feature) {
	m.info("version_info", "[ALPHA] Provides the compatibility version info of the component. The component label is the "+
		"name of the component, usually kube, but is relevant for aggregated-apiservers.",
		prometheus.Labels{"binary": v.Binary, "component": "kube", "emulation": v.Emulated, "min_compat": v.MinCompatible})
	m.Register(featureCollector{features, prometheus.NewDesc("kubernetes_feature_enabled",
		"[BETA] This metric records the data about the stage and enablement of a k8s feature.", []string{"name", "stage"}, nil)})
}

// featureCollector makes the metrics of feature gates only when metrics are read. They are many and never change,
// so it would be a waste to keep them in memory.
type featureCollector struct {
	features    func() []Feature
	description *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c featureCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.description }

// Collect implements prometheus.Collector.
func (c featureCollector) Collect(ch chan<- prometheus.Metric) {
	for _, f := range c.features() {
		enabled := 0.0
		if f.Enabled {
			enabled = 1
		}
		ch <- prometheus.MustNewConstMetric(c.description, prometheus.GaugeValue, enabled, f.Name, f.Stage)
	}
}
