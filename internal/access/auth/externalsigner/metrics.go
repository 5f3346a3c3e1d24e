package externalsigner

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Metrics count the calls of the program, with kube-apiserver's metric names and labels.
type Metrics struct {
	fetchedAt, dataAt *prometheus.GaugeVec
	fetches, signs    *prometheus.CounterVec
	durations         *prometheus.HistogramVec
}

// NewMetrics registers and returns the metrics, which have no series at first. It may be called once.
func NewMetrics(m *metrics.Metrics) *Metrics {
	return &Metrics{
		fetchedAt: m.Gauges("apiserver_externaljwt_fetch_keys_success_timestamp",
			"[ALPHA] Unix Timestamp in seconds of the last successful FetchKeys request"),
		dataAt: m.Gauges("apiserver_externaljwt_fetch_keys_data_timestamp", "[ALPHA] Unix Timestamp in seconds of the "+
			"last successful FetchKeys data_timestamp value returned by the external signer"),
		fetches: m.Counters("apiserver_externaljwt_fetch_keys_request_total",
			"[ALPHA] Total attempts at syncing supported JWKs", "code"),
		signs: m.Counters("apiserver_externaljwt_sign_request_total",
			"[ALPHA] Total attempts at signing JWT", "code"),
		durations: m.Histograms("apiserver_externaljwt_request_duration_seconds",
			"[ALPHA] Request duration and time for calls to external-jwt-signer",
			[]float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}, "method", "code"),
	}
}

func (m *Metrics) fetched(err error, now time.Time) {
	m.fetches.WithLabelValues(code(err)).Inc()
	if err == nil {
		m.fetchedAt.WithLabelValues().Set(seconds(now))
	}
}

func (m *Metrics) dataTimestamp(t time.Time) { m.dataAt.WithLabelValues().Set(seconds(t)) }

func (m *Metrics) signed(err error) { m.signs.WithLabelValues(code(err)).Inc() }

// intercept is a grpc.UnaryClientInterceptor that measures calls.
func (m *Metrics) intercept(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	o ...grpc.CallOption,
) error {
	start := time.Now()
	err := invoke(ctx, method, req, reply, conn, o...)
	m.durations.WithLabelValues(method, code(err)).Observe(time.Since(start).Seconds())
	return err
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }

// code returns the label of an error: its gRPC code, or "unknown-non-grpc".
func code(err error) string {
	if err == nil {
		return codes.OK.String()
	}
	var of interface{ GRPCStatus() *status.Status }
	if errors.As(err, &of) {
		return of.GRPCStatus().Code().String()
	}
	return "unknown-non-grpc"
}
