package etcd

import (
	"context"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// TestMetricsOfTheClient reads, writes and watches, and looks for what the client of the cluster has counted.
func TestMetricsOfTheClient(t *testing.T) {
	t.Parallel()
	c := start(t, 1, nil)
	m := metrics.New(metrics.Build{}, metrics.Options{})
	value := func(series string) float64 {
		t.Helper()
		answer := httptest.NewRecorder()
		m.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(answer.Body.String())
		if found == nil {
			return 0
		}
		n, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	s := c.open(t, etcd.Options{Recorder: etcd.NewMetrics(m), LeaseReuse: time.Second})
	watch, err := s.Watch(t.Context(), "/w/", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"/w/a", "/w/b"} {
		op := storage.Put(key, []byte("x"))
		op.TTL = 100
		if _, err := s.Commit(t.Context(), storage.Txn{Ops: []storage.Op{op}}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := watch.Next(ctx); err != nil {
		t.Fatal("no event within 20 s:", err)
	}
	watch.Close()
	time.Sleep(time.Second) // the lease is given to no more keys
	op := storage.Put("/w/c", []byte("x"))
	op.TTL = 100
	if _, err := s.Commit(t.Context(), storage.Txn{Ops: []storage.Op{op}}); err != nil {
		t.Fatal(err)
	}
	const txn = `grpc_method="Txn",grpc_service="etcdserverpb.KV",grpc_type="unary"}`
	const grants = `{grpc_code="OK",grpc_method="LeaseGrant",grpc_service="etcdserverpb.Lease",grpc_type="unary"}`
	const watches = `{grpc_method="Watch",grpc_service="etcdserverpb.Watch",grpc_type="bidi_stream"}`
	for series, least := range map[string]float64{
		`grpc_client_started_total{` + txn:                3,
		`grpc_client_handled_total{grpc_code="OK",` + txn: 3,
		`grpc_client_msg_sent_total{` + txn:               3,
		`grpc_client_msg_received_total{` + txn:           3,
		`grpc_client_handled_total` + grants:              2,
		`grpc_client_started_total` + watches:             1,
		`grpc_client_msg_sent_total` + watches:            1,
		`grpc_client_msg_received_total` + watches:        2, // that it was made, and an event
		`etcd_lease_object_counts_count`:                  1,
		`etcd_lease_object_counts_sum`:                    2,
	} {
		if n := value(series); n < least {
			t.Errorf("%s is %v, want at least %v", series, n, least)
		}
	}
	if n := value("etcd_lease_object_counts_sum"); n != 2 {
		t.Errorf("the full lease has %v keys, want 2", n)
	}
}
