package metrics

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/yaml"
)

// Options select the metrics and labels in the output. They do not change what is counted.
type Options struct {
	// Disabled are the names of metrics that are omitted. It has precedence over ShowHidden.
	Disabled []string
	// ShowHidden also shows the metrics that kube-apiserver has deprecated so long ago that it hides them.
	ShowHidden bool
	// Allowed are the values that labels of metrics may have: "METRIC,LABEL" -> "VALUE,VALUE". Other values become
	// "unexpected". Series that have the same labels then are added up.
	Allowed map[string]string
}

// Parse returns the options for the flags of kube-apiserver: allowed is the value of --allow-metric-labels, manifest
// the file of --allow-metric-labels-manifest, and hidden the value of --show-hidden-metrics-for-version, which may only
// be previous. The messages of errors are those of kube-apiserver.
func Parse(disabled []string, allowed map[string]string, manifest, hidden, previous string) (Options, error) {
	o := Options{Disabled: disabled, Allowed: allowed, ShowHidden: hidden != ""}
	if hidden != "" && hidden != previous {
		return o, fmt.Errorf("metrics.showHiddenMetricsForVersion: Invalid value: %q: must be omitted or have the value '%s'; "+
			"only the previous minor version is allowed", hidden, previous)
	}
	const form = "^[a-zA-Z_:][a-zA-Z0-9_:]*$"
	name := regexp.MustCompile(form)
	for _, metric := range disabled {
		if !name.MatchString(metric) {
			return o, fmt.Errorf("metrics.disabledMetrics: Invalid value: %q: must be fully qualified metric names matching %q, "+
				"got %q", disabled, form, metric)
		}
	}
	if manifest != "" {
		if len(allowed) > 0 {
			return o, fmt.Errorf("metrics: Invalid value: cannot specify both allowListMapping and allowListMappingManifest")
		}
		var err error
		if o.Allowed, err = readManifest(manifest); err != nil {
			return o, fmt.Errorf("metrics.allowListMappingManifest: Invalid value: %q: %w", manifest, err)
		}
	}
	for key := range o.Allowed {
		metric, label, found := strings.Cut(key, ",")
		if !found || !name.MatchString(metric) || !name.MatchString(label) {
			return o, fmt.Errorf("metrics.allowListMapping: Invalid value: %q: must have the form METRIC,LABEL", key)
		}
	}
	return o, nil
}

func readManifest(file string) (map[string]string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("failed to read allow list manifest: %w", err)
	}
	var manifest struct {
		AllowListMapping map[string]string `json:"allowListMapping"`
	}
	if err := yaml.Unmarshal(content, &manifest); err != nil {
		return nil, fmt.Errorf("failed to parse allow list manifest: %w", err)
	}
	return manifest.AllowListMapping, nil
}

// hiddenMetric is a metric that kube-apiserver hides. Its values are those of the metric source.
type hiddenMetric struct{ name, source, help string }

var hiddenMetrics = []hiddenMetric{
	{"etcd_bookmark_counts", "etcd_bookmark_total",
		"[ALPHA] (Deprecated since 1.36.0) Number of etcd bookmarks (progress notify events) split by kind."},
}

// exposition is a prometheus.Gatherer that applies Options.
type exposition struct {
	prometheus.Gatherer
	disabled map[string]bool
	hidden   bool                                      // hidden metrics are included
	allowed  map[string]map[string]map[string]struct{} // metric -> label -> values
	// unexpected counts the values of labels that became "unexpected".
	unexpected atomic.Int64
}

func newExposition(g prometheus.Gatherer, o Options) *exposition {
	e := &exposition{
		Gatherer: g, disabled: map[string]bool{}, hidden: o.ShowHidden, allowed: map[string]map[string]map[string]struct{}{},
	}
	for _, name := range o.Disabled {
		e.disabled[name] = true
	}
	for key, values := range o.Allowed {
		metric, label, _ := strings.Cut(key, ",")
		if e.allowed[metric] == nil {
			e.allowed[metric] = map[string]map[string]struct{}{}
		}
		allowed := map[string]struct{}{}
		for value := range strings.SplitSeq(values, ",") {
			allowed[value] = struct{}{}
		}
		e.allowed[metric][label] = allowed
	}
	return e
}

// Gather implements prometheus.Gatherer.
func (e *exposition) Gather() ([]*dto.MetricFamily, error) {
	families, err := e.Gatherer.Gather()
	if e.hidden {
		families = append(families, hiddenFamilies(families)...)
	}
	families = slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return e.disabled[f.GetName()] })
	for _, f := range families {
		if labels := e.allowed[f.GetName()]; labels != nil {
			f.Metric = e.restrict(f.Metric, labels)
		}
	}
	families = append(families, e.own(families)...)
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return families, err
}

// hiddenFamilies returns the hidden metrics whose sources are among families.
func hiddenFamilies(families []*dto.MetricFamily) (out []*dto.MetricFamily) {
	for _, f := range families {
		for i := range hiddenMetrics {
			if h := &hiddenMetrics[i]; h.source == f.GetName() {
				out = append(out, &dto.MetricFamily{Name: &h.name, Help: &h.help, Type: f.Type, Metric: slices.Clone(f.Metric)})
			}
		}
	}
	return out
}

// restrict replaces the values of labels that are not allowed, and adds up the metrics that have the same labels then.
func (e *exposition) restrict(all []*dto.Metric, labels map[string]map[string]struct{}) []*dto.Metric {
	byLabels := map[string]*dto.Metric{}
	var out []*dto.Metric
	for _, m := range all {
		restricted := make([]*dto.LabelPair, len(m.Label))
		var key strings.Builder
		for i, pair := range m.Label {
			restricted[i] = pair
			if allowed := labels[pair.GetName()]; allowed != nil {
				if _, ok := allowed[pair.GetValue()]; !ok {
					e.unexpected.Add(1)
					unexpected := "unexpected"
					restricted[i] = &dto.LabelPair{Name: pair.Name, Value: &unexpected}
				}
			}
			key.WriteString(restricted[i].GetValue() + labelSeparator)
		}
		m.Label = restricted
		if same := byLabels[key.String()]; same != nil {
			addMetric(same, m)
			continue
		}
		byLabels[key.String()] = m
		out = append(out, m)
	}
	return out
}

// addMetric adds the values of b to a. Quantiles cannot be added, so those of a are not changed.
func addMetric(a, b *dto.Metric) {
	switch {
	case a.Counter != nil && b.Counter != nil:
		*a.Counter.Value += b.Counter.GetValue()
	case a.Gauge != nil && b.Gauge != nil:
		*a.Gauge.Value += b.Gauge.GetValue()
	case a.Summary != nil && b.Summary != nil:
		*a.Summary.SampleCount += b.Summary.GetSampleCount()
		*a.Summary.SampleSum += b.Summary.GetSampleSum()
	case a.Histogram != nil && b.Histogram != nil && len(a.Histogram.Bucket) == len(b.Histogram.Bucket):
		*a.Histogram.SampleCount += b.Histogram.GetSampleCount()
		*a.Histogram.SampleSum += b.Histogram.GetSampleSum()
		for i, bucket := range b.Histogram.Bucket {
			*a.Histogram.Bucket[i].CumulativeCount += bucket.GetCumulativeCount()
		}
	}
}

// own returns the metrics about the metrics themselves, such as how many are registered, hidden or disabled.
func (e *exposition) own(families []*dto.MetricFamily) []*dto.MetricFamily {
	stabilities := map[[2]string]int{}
	for _, f := range families {
		stability, _, found := strings.Cut(strings.TrimPrefix(f.GetHelp(), "EXPERIMENTAL: "), "] ")
		if !found || !strings.HasPrefix(stability, "[") {
			continue
		}
		deprecated := ""
		if _, since, ok := strings.Cut(f.GetHelp(), "(Deprecated since "); ok {
			deprecated, _, _ = strings.Cut(since, ")")
		}
		stabilities[[2]string{deprecated, stability[1:]}]++
	}
	hidden := len(hiddenMetrics)
	if e.hidden {
		hidden = 0
	}
	registered := family("registered_metrics_total",
		"[BETA] The count of registered metrics broken by stability level and deprecation version.")
	for key, n := range stabilities {
		registered.add(float64(n), "deprecated_version", key[0], "stability_level", key[1])
	}
	slices.SortFunc(registered.Metric, func(a, b *dto.Metric) int { return strings.Compare(a.String(), b.String()) })
	return []*dto.MetricFamily{
		registered.MetricFamily,
		family("hidden_metrics_total", "[BETA] The count of hidden metrics.").add(float64(hidden)).MetricFamily,
		family("disabled_metrics_total", "[BETA] The count of disabled metrics.").add(float64(len(e.disabled))).MetricFamily,
		family("cardinality_enforcement_unexpected_categorizations_total", "[ALPHA] The count of unexpected categorizations "+
			"during cardinality enforcement.").add(float64(e.unexpected.Load())).MetricFamily,
	}
}

// counterFamily is a metric that is made when metrics are read.
type counterFamily struct{ *dto.MetricFamily }

func family(name, help string) counterFamily {
	return counterFamily{&dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_COUNTER.Enum()}}
}

// add adds a series with pairs of names and values of labels.
func (f counterFamily) add(value float64, labels ...string) counterFamily {
	m := &dto.Metric{Counter: &dto.Counter{Value: &value}}
	for i := 0; i < len(labels); i += 2 {
		m.Label = append(m.Label, &dto.LabelPair{Name: &labels[i], Value: &labels[i+1]})
	}
	f.Metric = append(f.Metric, m)
	return f
}
