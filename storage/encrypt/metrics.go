package encrypt

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Values of the label transformation_type.
const (
	fromStorage = "from_storage"
	toStorage   = "to_storage"
)

// keySeries bounds the series whose label is the hash of a plug-in's key: each
// stored value may name another key.
const keySeries = 100

// Metrics count what encryption does, under kube-apiserver's names and labels. They
// are there without an encryption too, at zero.
type Metrics struct {
	server string // hash of the API server's identity

	operations     *prometheus.CounterVec
	durations      *prometheus.HistogramVec
	misses         prometheus.Counter
	seeds          prometheus.Histogram
	seedFailures   prometheus.Counter
	dekCache       prometheus.Gauge // of KMS v1, which there is not: zero
	calls          *prometheus.HistogramVec
	invalidKeys    *prometheus.CounterVec
	sources        *prometheus.GaugeVec
	keyUses        *prometheus.CounterVec
	keyUsed        *prometheus.GaugeVec
	keyConfirmed   *prometheus.GaugeVec
	reloads        *prometheus.CounterVec
	reloaded       *prometheus.GaugeVec
	configuration  *prometheus.GaugeVec
	mu             sync.Mutex // guards what follows
	used, promised recent
}

// NewMetrics returns the metrics of the API server with an identity, which may be
// empty.
func NewMetrics(identity string) *Metrics {
	const envelope, storage, controller = "envelope_encryption", "storage", "encryption_config_controller"
	counter := func(subsystem, name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "apiserver", Subsystem: subsystem, Name: name, Help: "[ALPHA] " + help}
	}
	gauge := func(subsystem, name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts(counter(subsystem, name, help)), labels)
	}
	histogram := func(subsystem, name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{
			Namespace: "apiserver", Subsystem: subsystem, Name: name, Help: "[ALPHA] " + help, Buckets: buckets,
		}
	}
	exponential := prometheus.ExponentialBuckets
	return &Metrics{
		server: hashLabel(identity),
		operations: prometheus.NewCounterVec(counter(storage, "transformation_operations_total",
			"Total number of transformations. Successful transformation will have a status 'OK' and a varied status string when the transformation fails. The status, resource, and transformation_type fields can be used for alerting purposes. For example, you can monitor for encryption/decryption failures using the transformation_type (e.g., from_storage for decryption and to_storage for encryption). Additionally, these fields can be used to ensure that the correct transformers are applied to each resource."),
			[]string{"resource", "transformation_type", "transformer_prefix", "status"}),
		durations: prometheus.NewHistogramVec(histogram(storage, "transformation_duration_seconds",
			"Latencies in seconds of value transformation operations.", exponential(5e-6, 2, 25)), []string{"transformation_type", "transformer_prefix"}),
		misses: prometheus.NewCounter(counter(storage, "envelope_transformation_cache_misses_total",
			"Total number of cache misses while accessing key decryption key(KEK).")),
		seeds: prometheus.NewHistogram(histogram(storage, "data_key_generation_duration_seconds",
			"Latencies in seconds of data encryption key(DEK) generation operations.", exponential(5e-6, 2, 14))),
		seedFailures: prometheus.NewCounter(counter(storage, "data_key_generation_failures_total",
			"Total number of failed data encryption key(DEK) generation operations.")),
		dekCache: prometheus.NewGauge(prometheus.GaugeOpts(counter(envelope, "dek_cache_fill_percent",
			"Percent of the cache slots currently occupied by cached DEKs."))),
		calls: prometheus.NewHistogramVec(histogram(envelope, "kms_operations_latency_seconds",
			"KMS operation duration with gRPC error code status total.", exponential(0.0001, 2, 20)), []string{"provider_name", "method_name", "grpc_status_code"}),
		invalidKeys: prometheus.NewCounterVec(counter(envelope, "invalid_key_id_from_status_total",
			"Number of times an invalid keyID is returned by the Status RPC call split by error."), []string{"provider_name", "error"}),
		sources: gauge(envelope, "dek_source_cache_size",
			"Number of records in data encryption key (DEK) source cache. On a restart, this value is an approximation of the number of decrypt RPC calls the server will make to the KMS plugin.", "provider_name"),
		keyUses: prometheus.NewCounterVec(counter(envelope, "key_id_hash_total",
			"Number of times a keyID is used split by transformation type, provider, and apiserver identity."), []string{"transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"}),
		keyUsed: gauge(envelope, "key_id_hash_last_timestamp_seconds",
			"The last time in seconds when a keyID was used.", "transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"),
		keyConfirmed: gauge(envelope, "key_id_hash_status_last_timestamp_seconds",
			"The last time in seconds when a keyID was returned by the Status RPC call.", "provider_name", "key_id_hash", "apiserver_id_hash"),
		reloads: prometheus.NewCounterVec(counter(controller, "automatic_reloads_total",
			"Total number of reload successes and failures of encryption configuration split by apiserver identity."), []string{"status", "apiserver_id_hash"}),
		reloaded: gauge(controller, "automatic_reload_last_timestamp_seconds",
			"Timestamp of the last successful or failed automatic reload of encryption configuration split by apiserver identity.", "status", "apiserver_id_hash"),
		configuration: gauge(controller, "last_config_info",
			"Information about the last applied encryption configuration with hash as label, split by apiserver identity.", "apiserver_id_hash", "hash"),
	}
}

// Collectors are all of them.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.operations, m.durations, m.misses, m.seeds, m.seedFailures, m.dekCache, m.calls, m.invalidKeys, m.sources,
		m.keyUses, m.keyUsed, m.keyConfirmed, m.reloads, m.reloaded, m.configuration,
	}
}

// transformed counts one transformation by what has a prefix.
func (m *Metrics) transformed(ctx context.Context, kind, prefix string, began time.Time, err error) {
	if m == nil {
		return
	}
	resource, _ := ctx.Value(resourceKey{}).(string)
	m.operations.WithLabelValues(resource, kind, prefix, grpcCode(err)).Inc()
	if err == nil {
		m.durations.WithLabelValues(kind, prefix).Observe(time.Since(began).Seconds())
	}
}

// resourceKey is the context's key of the resource that a transformation is for.
type resourceKey struct{}

// intercept measures the calls of a plug-in.
func (m *Metrics) intercept(provider string) grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption,
	) error {
		began := time.Now()
		err := invoke(ctx, method, request, reply, conn, opts...)
		m.calls.WithLabelValues(provider, method, grpcCode(err)).Observe(time.Since(began).Seconds())
		return err
	}
}

// generated measures the making of a seed.
func (m *Metrics) generated(began time.Time, err error) {
	if err != nil {
		m.seedFailures.Inc()
		return
	}
	m.seeds.Observe(time.Since(began).Seconds())
}

// keyOf notes the use of a plug-in's key.
func (m *Metrics) keyOf(kind, provider, keyID string) {
	labels := []string{kind, provider, hashLabel(keyID), m.server}
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.used.add(labels); old != nil {
		m.keyUses.DeleteLabelValues(old...)
		m.keyUsed.DeleteLabelValues(old...)
	}
	m.keyUses.WithLabelValues(labels...).Inc()
	m.keyUsed.WithLabelValues(labels...).SetToCurrentTime()
}

// confirmed notes that a plug-in said which its key is.
func (m *Metrics) confirmed(provider, keyID string) {
	labels := []string{provider, hashLabel(keyID), m.server}
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.promised.add(labels); old != nil {
		m.keyConfirmed.DeleteLabelValues(old...)
	}
	m.keyConfirmed.WithLabelValues(labels...).SetToCurrentTime()
}

// invalid notes that what a plug-in said cannot be a key.
func (m *Metrics) invalid(provider, keyID string) {
	reason := "too_long"
	if keyID == "" {
		reason = "empty"
	}
	m.invalidKeys.WithLabelValues(provider, reason).Inc()
}

// loaded notes the configuration in use.
func (m *Metrics) loaded(document []byte) {
	m.configuration.Reset()
	m.configuration.WithLabelValues(m.server, hashLabel(string(document))).Set(1)
}

// reload notes the outcome of following the file.
func (m *Metrics) reload(err error) {
	outcome := "success"
	if err != nil {
		outcome = "failure"
	}
	m.reloads.WithLabelValues(outcome, m.server).Inc()
	m.reloaded.WithLabelValues(outcome, m.server).SetToCurrentTime()
}

// hashLabel is how identities and keys are named in labels.
func hashLabel(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))
}

// grpcCode is the status of a transformation that may have asked a plug-in.
func grpcCode(err error) string {
	if err == nil {
		return codes.OK.String()
	}
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Code().String()
	}
	return "unknown-non-grpc"
}

// recent is a bounded set of label values, the oldest first.
type recent struct {
	there map[string]bool
	order [][]string
}

// add returns what had to go for labels.
func (r *recent) add(labels []string) (old []string) {
	if r.there == nil {
		r.there = map[string]bool{}
	}
	key := fmt.Sprint(labels)
	if r.there[key] {
		return nil
	}
	r.there[key] = true
	r.order = append(r.order, labels)
	if len(r.order) <= keySeries {
		return nil
	}
	old, r.order = r.order[0], r.order[1:]
	delete(r.there, fmt.Sprint(old))
	return old
}
