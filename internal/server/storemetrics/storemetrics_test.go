package storemetrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/storage"
)

// series returns the names and values that the collectors collect, as "name{label=value}value".
func series(t *testing.T, collectors ...prometheus.Collector) string {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(collectors...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			out = append(out, strings.ReplaceAll(f.GetName()+" "+m.String(), "  ", " "))
		}
	}
	return strings.Join(out, "\n")
}

func TestObjects(t *testing.T) {
	got := series(t, Objects(func() map[schema.GroupResource]int64 {
		return map[schema.GroupResource]int64{{Resource: "pods"}: 3, {Group: "g.io", Resource: "widgets"}: 7}
	}))
	for _, want := range []string{`"pods"`, `"widgets.g.io"`, "value:3", "value:7"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

// TestUnknownSpace checks that there is no metric, instead of a negative number, if the free space is unknown.
func TestUnknownSpace(t *testing.T) {
	for available, shown := range map[int64]bool{-1: false, 0: true} {
		got := series(t, Space(func() storage.Space { return storage.Space{Available: available, Low: true} })...)
		low := strings.Contains(got, "keelson_storage_low_space gauge:{value:1}")
		if strings.Contains(got, "keelson_storage_available_bytes") != shown || !low {
			t.Errorf("%d bytes are free:\n%s", available, got)
		}
	}
}
