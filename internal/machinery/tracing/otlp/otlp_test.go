package otlp

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\n"
	for name, c := range map[string]struct {
		text string
		want Config
		err  string // a part of the error
	}{
		"defaults": {text: head, want: Config{Endpoint: "localhost:4317"}},
		"all": {
			text: head + "endpoint: unix:///run/otel\nsamplingRatePerMillion: 100\n",
			want: Config{Endpoint: "unix:///run/otel", SamplingRate: 100},
		},
		"version v1":      {text: strings.Replace(head, "v1beta1", "v1", 1), want: Config{Endpoint: "localhost:4317"}},
		"unknown version": {text: strings.Replace(head, "v1beta1", "v2", 1), err: "expected TracingConfiguration"},
		"other kind":      {text: strings.Replace(head, "Tracing", "Other", 1), err: "expected TracingConfiguration"},
		"unknown field":   {text: head + "nope: 1\n", err: "strict decoding error"},
		"two rates":       {text: head + "endpoint: a\nendpoint: b\n", err: "already set"},
		"rate too large":  {text: head + "samplingRatePerMillion: 1000001\n", err: "less than or equal to one million"},
		"negative rate":   {text: head + "samplingRatePerMillion: -1\n", err: "must be positive"},
		"scheme":          {text: head + "endpoint: https://a\n", err: "unsupported scheme"},
	} {
		got, err := parse([]byte(c.text))
		if c.err == "" && (err != nil || got != c.want) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
