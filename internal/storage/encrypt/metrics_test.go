package encrypt

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// nonZeroSeries returns the value of each series that is not zero. For a histogram, the value is the number of
// observations. Values that are times are replaced by 1.
func nonZeroSeries(t *testing.T, m *Metrics) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, s := range f.Metric {
			var labels []string
			for _, l := range s.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := strings.TrimPrefix(f.GetName(), "apiserver_")
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			v := s.GetCounter().GetValue() + s.GetGauge().GetValue() + float64(s.GetHistogram().GetSampleCount())
			if strings.HasSuffix(f.GetName(), "timestamp_seconds") {
				v = 1
			}
			if v != 0 {
				out[name] = v
			}
		}
	}
	return out
}

// want checks that the series that begin with one of the prefixes are the expected ones.
func want(t *testing.T, got map[string]float64, prefixes []string, expected map[string]float64) {
	t.Helper()
	for name, v := range got {
		for _, p := range prefixes {
			if strings.HasPrefix(name, p) && expected[name] != v {
				t.Errorf("%s is %v, want %v", name, v, expected[name])
			}
		}
	}
	for name, v := range expected {
		if got[name] != v {
			t.Errorf("%s is %v, want %v", name, got[name], v)
		}
	}
}

func TestTransformationMetrics(t *testing.T) {
	m := NewMetrics("")
	name := filepath.Join(t.TempDir(), "config.yaml")
	text := document(entry("secrets", keys("aesgcm", "k1", secretOf(32)), identityProvider))
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := Open(Options{File: name, Metrics: m})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	secrets := e.Resource(schema.ParseGroupResource("secrets"))
	ctx := context.Background()
	value, err := secrets.ToStore(ctx, someKey, []byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	for _, stored := range []string{
		string(value), string(value), plain, string(value[:len(value)-1]), "k8s:enc:secretbox:v1:k:",
	} {
		_, _, _ = secrets.FromStore(ctx, someKey, []byte(stored)) // its error is counted
	}
	series := func(kind, prefix, status string) string {
		return fmt.Sprintf(
			"storage_transformation_operations_total{resource=secrets,status=%s,transformation_type=%s,transformer_prefix=%s}",
			status, kind, prefix,
		)
	}
	want(t, nonZeroSeries(t, m), []string{"storage_transformation_operations_total"}, map[string]float64{
		series("to_storage", "k1:", "OK"):                                                                1,
		series("to_storage", "k8s:enc:aesgcm:v1:", "OK"):                                                 1,
		series("from_storage", "k1:", "OK"):                                                              2,
		series("from_storage", "k8s:enc:aesgcm:v1:", "OK"):                                               2,
		series("from_storage", "k1:", "unknown-non-grpc"):                                                1,
		series("from_storage", "k8s:enc:aesgcm:v1:", "unknown-non-grpc"):                                 1,
		series("from_storage", "identity", "OK"):                                                         1,
		series("from_storage", "unknown", "unknown-non-grpc"):                                            1,
		"encryption_config_controller_last_config_info{apiserver_id_hash=,hash=" + hashLabel(text) + "}": 1,
	})
}

func TestKMSMetrics(t *testing.T) {
	ctx := context.Background()
	socket := socketIn(t)
	p := startPlugin(t, socket)
	text := document(entry("secrets", kmsProvider("vault", socket)))
	name := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	value := mustStore(t, open(t, text), someKey, plain)
	m := NewMetrics("server")
	e, err := Open(Options{File: name, Metrics: m, Reload: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	secrets := e.Resource(schema.ParseGroupResource("secrets"))
	for range 3 {
		if _, _, err := read(e, someKey, value); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := secrets.ToStore(ctx, someKey, []byte(plain)); err != nil {
		t.Fatal(err)
	}
	p.Stop()
	if err := os.WriteFile(name, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.Reload(ctx, os.ReadFile); err == nil {
		t.Fatal("an invalid file was loaded")
	}
	got := nonZeroSeries(t, m)
	const calls = "envelope_encryption_kms_operations_latency_seconds{grpc_status_code=OK," +
		"method_name=/v2.KeyManagementService/"
	id := "apiserver_id_hash=" + hashLabel("server")
	want(t, got, []string{"envelope_encryption_kms", "envelope_encryption_dek"}, map[string]float64{
		calls + "Status,provider_name=vault}":                            1,
		calls + "Encrypt,provider_name=vault}":                           1,
		calls + "Decrypt,provider_name=vault}":                           1,
		"storage_envelope_transformation_cache_misses_total":             1,
		"storage_data_key_generation_duration_seconds":                   1,
		"envelope_encryption_dek_source_cache_size{provider_name=vault}": 2,
	})
	for _, c := range []struct {
		kind string
		n    float64
	}{{"from_storage", 3}, {"to_storage", 1}} {
		found := 0.0
		for name, v := range got {
			if strings.HasPrefix(name, "envelope_encryption_key_id_hash_total{"+id) && strings.Contains(name, c.kind) {
				found += v
			}
		}
		if found != c.n {
			t.Errorf("keys were used %v times %s, want %v", found, c.kind, c.n)
		}
	}
}

// TestKeySeriesAreBounded checks that the number of series is limited, because stored values may contain any key ID.
func TestKeySeriesAreBounded(t *testing.T) {
	m := NewMetrics("")
	for i := range 3 * maxKeySeries {
		m.keyUsed(fromStorage, "vault", fmt.Sprint(i))
		m.keyConfirmed("vault", fmt.Sprint(i))
	}
	counts := map[string]int{}
	for name := range nonZeroSeries(t, m) {
		family, _, _ := strings.Cut(name, "{")
		counts[family]++
	}
	for _, family := range []string{
		"envelope_encryption_key_id_hash_total", "envelope_encryption_key_id_hash_last_timestamp_seconds",
		"envelope_encryption_key_id_hash_status_last_timestamp_seconds",
	} {
		if counts[family] != maxKeySeries {
			t.Errorf("%d series of %s", counts[family], family)
		}
	}
}
