package main

import (
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/config"
)

// metricsFlags adds the flags that select metrics and labels.
func metricsFlags(f *pflag.FlagSet, c *config.Metrics) {
	f.StringToStringVar(&c.AllowedLabels, "allow-metric-labels", nil, "The map from metric-label to value allow-list of this label. "+
		"The key's format is <MetricName>,<LabelName>. The value's format is <allowed_value>,<allowed_value>...e.g. "+
		"metric1,label1='v1,v2,v3', metric1,label2='v1,v2,v3' metric2,label1='v1,v2,v3'. Other values become unexpected.")
	f.StringVar(&c.AllowedLabelsFile, "allow-metric-labels-manifest", "", "The path to the manifest file that contains the allow-list "+
		"mapping, as YAML: allowListMapping: {\"metric1,label1\": \"value11,value12\"}. Not together with "+
		"--allow-metric-labels.")
	f.StringSliceVar(&c.Disabled, "disabled-metrics", nil, "This flag provides an escape hatch for misbehaving metrics. You "+
		"must provide the fully qualified metric name in order to disable it. Disclaimer: disabling metrics is higher in "+
		"precedence than showing hidden metrics.")
	f.StringVar(&c.ShowHiddenFor, "show-hidden-metrics-for-version", "", "The previous version for which you want to show hidden "+
		"metrics. Only the previous minor version is meaningful, other values will not be allowed. The format is "+
		"<major>.<minor>, e.g.: '1.16'.")
}
