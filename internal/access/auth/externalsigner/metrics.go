package externalsigner

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Metrics count the calls of the program, with kube-apiserver's metric names and labels.
type Metrics struct {
	fetchedAt, dataAt *prometheus.GaugeVec
	fetches, signs    *prometheus.CounterVec
	durations         *prometheus.HistogramVec
}

// NewMetrics returns metrics without any series.
func NewMetrics() *Metrics {
	options := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "apiserver", Subsystem: "externaljwt", Name: name, Help: "[ALPHA] " + help}
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts(options(name, help)), nil)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts(options(name, help)), []string{"code"})
	}
	return &Metrics{
		fetchedAt: gauge("fetch_keys_success_timestamp",
			"Unix Timestamp in seconds of the last successful FetchKeys request"),
		dataAt: gauge("fetch_keys_data_timestamp",
			"Unix Timestamp in seconds of the last successful FetchKeys data_timestamp value returned by the external signer"),
		fetches: counter("fetch_keys_request_total", "Total attempts at syncing supported JWKs"),
		signs:   counter("sign_request_total", "Total attempts at signing JWT"),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "apiserver", Subsystem: "externaljwt", Name: "request_duration_seconds",
			Help:    "[ALPHA] Request duration and time for calls to external-jwt-signer",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"method", "code"}),
	}
}

// Collectors returns the metrics to register.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.fetchedAt, m.dataAt, m.fetches, m.signs, m.durations}
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
