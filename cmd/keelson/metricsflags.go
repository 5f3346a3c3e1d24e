package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/server/version"
)

// metricsFlags are the flags that say which metrics are shown.
type metricsFlags struct {
	allowed          map[string]string
	manifest, hidden string
	disabled         []string
}

// add adds the flags.
func (m *metricsFlags) add(f *pflag.FlagSet) {
	f.StringToStringVar(&m.allowed, "allow-metric-labels", nil, "The map from metric-label to value allow-list of this label. "+
		"The key's format is <MetricName>,<LabelName>. The value's format is <allowed_value>,<allowed_value>...e.g. "+
		"metric1,label1='v1,v2,v3', metric1,label2='v1,v2,v3' metric2,label1='v1,v2,v3'. Other values become unexpected.")
	f.StringVar(&m.manifest, "allow-metric-labels-manifest", "", "The path to the manifest file that contains the allow-list "+
		"mapping, as YAML: allowListMapping: {\"metric1,label1\": \"value11,value12\"}. Not together with "+
		"--allow-metric-labels.")
	f.StringSliceVar(&m.disabled, "disabled-metrics", nil, "This flag provides an escape hatch for misbehaving metrics. You "+
		"must provide the fully qualified metric name in order to disable it. Disclaimer: disabling metrics is higher in "+
		"precedence than showing hidden metrics.")
	f.StringVar(&m.hidden, "show-hidden-metrics-for-version", "", "The previous version for which you want to show hidden "+
		"metrics. Only the previous minor version is meaningful, other values will not be allowed. The format is "+
		"<major>.<minor>, e.g.: '1.16'.")
}

// options returns what the flags ask for.
func (m *metricsFlags) options() (metrics.Options, error) {
	minor, err := strconv.Atoi(version.Minor)
	if err != nil {
		return metrics.Options{}, err
	}
	previous := fmt.Sprintf("%s.%d", version.Major, minor-1)
	return metrics.Parse(m.disabled, m.allowed, m.manifest, m.hidden, previous)
}
