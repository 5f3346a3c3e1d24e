package metrics

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// shown returns the metrics after one request for each of the verbs GET, POST and PUT.
func shown(t *testing.T, o Options) string {
	t.Helper()
	m := New(nil, o)
	labels := []string{"verb", "group", "version", "resource", "subresource", "scope", "component", "dry_run"}
	total := m.Counters("apiserver_request_total", "[STABLE] Counter.", append(slices.Clone(labels), "code")...)
	durations := m.Durations("apiserver_request_duration_seconds", "[STABLE] Latency.", DurationBuckets(), labels...)
	slis := m.Durations("apiserver_request_sli_duration_seconds", "[ALPHA] Latency.", DurationBuckets()[2:], labels[:7]...)
	m.Counters("etcd_bookmark_total", "[ALPHA] Bookmarks.").WithLabelValues().Inc()
	for _, verb := range []string{"GET", "POST", "PUT"} {
		values := []string{verb, "", "v1", "pods", "", "resource", "apiserver", ""}
		total.WithLabelValues(append(slices.Clone(values), "200")...).Inc()
		durations.With(values...).Observe(int64(time.Millisecond))
		slis.With(values[:7]...).Observe(int64(time.Millisecond))
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func TestFlagsSayWhatIsShown(t *testing.T) {
	manifest := filepath.Join(t.TempDir(), "allowed.yaml")
	content := "allowListMapping:\n  \"apiserver_request_total,verb\": \"GET\"\n"
	if err := os.WriteFile(manifest, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	const allowed = "apiserver_request_total,verb"
	for _, c := range []struct {
		name             string
		disabled         []string
		allowed          map[string]string
		manifest, hidden string
		want, not        []string
	}{
		{"nothing asked", nil, nil, "", "",
			[]string{`verb="POST"`, "hidden_metrics_total 1\n", "disabled_metrics_total 0\n",
				`registered_metrics_total{deprecated_version="",stability_level="STABLE"}`},
			[]string{"etcd_bookmark_counts", `"unexpected"`}},
		{"disabled", []string{"apiserver_request_total", "etcd_bookmark_counts"}, nil, "", "1.35",
			[]string{"disabled_metrics_total 2\n"}, []string{"\napiserver_request_total{", "etcd_bookmark_counts"}},
		{"hidden ones too", nil, nil, "", "1.35",
			[]string{"etcd_bookmark_counts 1", "hidden_metrics_total 0\n"}, nil},
		{"few labels", nil, map[string]string{allowed: "GET,LIST"}, "", "",
			[]string{`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",` +
				`scope="resource",subresource="",verb="unexpected",version="v1"} 2`,
				"cardinality_enforcement_unexpected_categorizations_total 2\n",
				`apiserver_request_duration_seconds_count{component="apiserver",dry_run="",group="",resource="pods",` +
					`scope="resource",subresource="",verb="POST",version="v1"} 1`},
			[]string{`subresource="",verb="POST",version="v1"} 2`}},
		{"of a histogram", nil, map[string]string{"apiserver_request_duration_seconds,verb": ""}, "", "",
			[]string{`apiserver_request_duration_seconds_count{component="apiserver",dry_run="",group="",resource="pods",` +
				`scope="resource",subresource="",verb="unexpected",version="v1"} 3`,
				`verb="unexpected",version="v1",le="0.005"} 3`}, nil},
		{"of a manifest", nil, nil, manifest, "", []string{`verb="unexpected",version="v1"} 2`}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := Parse(c.disabled, c.allowed, c.manifest, c.hidden, "1.35")
			if err != nil {
				t.Fatal(err)
			}
			text := shown(t, o)
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("there is no %s", want)
				}
			}
			for _, not := range c.not {
				if strings.Contains(text, not) {
					t.Errorf("there is %s", not)
				}
			}
		})
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for _, c := range []struct {
		disabled         []string
		allowed          map[string]string
		manifest, hidden string
		want             string
	}{
		{nil, nil, "", "1.34", `metrics.showHiddenMetricsForVersion: Invalid value: "1.34": must be omitted or have the value ` +
			`'1.35'; only the previous minor version is allowed`},
		{[]string{"2x"}, nil, "", "", `must be fully qualified metric names matching`},
		{nil, nil, "/missing", "", "failed to read allow list manifest"},
		{nil, map[string]string{"a,b": "c"}, "/missing", "", "cannot specify both allowListMapping and allowListMappingManifest"},
		{nil, map[string]string{"a": "c"}, "", "", "must have the form METRIC,LABEL"},
	} {
		_, err := Parse(c.disabled, c.allowed, c.manifest, c.hidden, "1.35")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
