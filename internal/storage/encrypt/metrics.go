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

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Values of the label transformation_type.
const (
	fromStorage = "from_storage"
	toStorage   = "to_storage"
)

// maxKeySeries limits the number of series with the hash of a key ID as a label, because each stored value may
// contain another key ID.
const maxKeySeries = 100

// Metrics counts the operations of encryption, with the names and labels of kube-apiserver. Without an encryption
// configuration the metrics exist, too, with the value zero.
type Metrics struct {
	*metrics.Set

	server   string // label that identifies the API server: the hash of its identity
	values   valueMetrics
	dataKeys dataKeyMetrics
	plugins  pluginMetrics
	keys     keyMetrics
	config   configMetrics
}

// valueMetrics counts the encryption and decryption of values.
type valueMetrics struct {
	operations *prometheus.CounterVec
	durations  *prometheus.HistogramVec
}

// dataKeyMetrics counts seeds (see plugin) and misses of their cache.
type dataKeyMetrics struct {
	cacheMisses prometheus.Counter
	generations prometheus.Histogram
	failures    prometheus.Counter
}

// pluginMetrics counts the calls of KMS plug-ins.
type pluginMetrics struct {
	calls       *prometheus.HistogramVec
	invalidKeys *prometheus.CounterVec
	cachedKeys  *prometheus.GaugeVec
}

// keyMetrics counts the uses of keys of KMS plug-ins. At most maxKeySeries series of each metric are kept.
type keyMetrics struct {
	uses             *prometheus.CounterVec
	lastUse          *prometheus.GaugeVec
	lastConfirmation *prometheus.GaugeVec

	mu        sync.Mutex    // guards the fields below
	used      boundedLabels // labels of uses and lastUse
	confirmed boundedLabels // labels of lastConfirmation
}

// configMetrics counts loads of the configuration.
type configMetrics struct {
	reloads    *prometheus.CounterVec
	lastReload *prometheus.GaugeVec
	info       *prometheus.GaugeVec
}

// NewMetrics returns the metrics of the API server with the given identity, which may be empty.
func NewMetrics(identity string) *Metrics {
	s := new(metrics.Set)
	// This metric belongs to KMS v1, which is not supported. It stays zero.
	s.Gauges("apiserver_envelope_encryption_dek_cache_fill_percent", "[ALPHA] Percent of the cache slots currently occupied "+
		"by cached DEKs.").WithLabelValues()
	keyLabels := []string{"transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"}
	return &Metrics{
		Set:    s,
		server: hashLabel(identity),
		values: valueMetrics{
			operations: s.Counters("apiserver_storage_transformation_operations_total", "[ALPHA] Total number of "+
				"transformations. Successful transformation will have a status 'OK' and a varied status string when "+
				"the transformation fails. The status, resource, and transformation_type fields can be used for "+
				"alerting purposes. For example, you can monitor for encryption/decryption failures using the "+
				"transformation_type (e.g., from_storage for decryption and to_storage for encryption). Additionally, "+
				"these fields can be used to ensure that the correct transformers are applied to each resource.",
				"resource", "transformation_type", "transformer_prefix", "status"),
			durations: s.Histograms("apiserver_storage_transformation_duration_seconds",
				"[ALPHA] Latencies in seconds of value transformation operations.",
				prometheus.ExponentialBuckets(5e-6, 2, 25), "transformation_type", "transformer_prefix"),
		},
		dataKeys: dataKeyMetrics{
			cacheMisses: s.Counter("apiserver_storage_envelope_transformation_cache_misses_total",
				"[ALPHA] Total number of cache misses while accessing key decryption key(KEK)."),
			generations: s.Histogram("apiserver_storage_data_key_generation_duration_seconds",
				"[ALPHA] Latencies in seconds of data encryption key(DEK) generation operations.",
				prometheus.ExponentialBuckets(5e-6, 2, 14)),
			failures: s.Counter("apiserver_storage_data_key_generation_failures_total",
				"[ALPHA] Total number of failed data encryption key(DEK) generation operations."),
		},
		plugins: pluginMetrics{
			calls: s.Histograms("apiserver_envelope_encryption_kms_operations_latency_seconds",
				"[ALPHA] KMS operation duration with gRPC error code status total.",
				prometheus.ExponentialBuckets(0.0001, 2, 20), "provider_name", "method_name", "grpc_status_code"),
			invalidKeys: s.Counters("apiserver_envelope_encryption_invalid_key_id_from_status_total",
				"[ALPHA] Number of times an invalid keyID is returned by the Status RPC call split by error.",
				"provider_name", "error"),
			cachedKeys: s.Gauges("apiserver_envelope_encryption_dek_source_cache_size", "[ALPHA] Number of records in "+
				"data encryption key (DEK) source cache. On a restart, this value is an approximation of the number "+
				"of decrypt RPC calls the server will make to the KMS plugin.", "provider_name"),
		},
		keys: keyMetrics{
			uses: s.Counters("apiserver_envelope_encryption_key_id_hash_total", "[ALPHA] Number of times a keyID is "+
				"used split by transformation type, provider, and apiserver identity.", keyLabels...),
			lastUse: s.Gauges("apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds",
				"[ALPHA] The last time in seconds when a keyID was used.", keyLabels...),
			lastConfirmation: s.Gauges("apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds",
				"[ALPHA] The last time in seconds when a keyID was returned by the Status RPC call.", "provider_name",
				"key_id_hash", "apiserver_id_hash"),
		},
		config: configMetrics{
			reloads: s.Counters("apiserver_encryption_config_controller_automatic_reloads_total",
				"[ALPHA] Total number of reload successes and failures of encryption configuration split by apiserver "+
					"identity.", "status", "apiserver_id_hash"),
			lastReload: s.Gauges("apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds",
				"[ALPHA] Timestamp of the last successful or failed automatic reload of encryption configuration "+
					"split by apiserver identity.", "status", "apiserver_id_hash"),
			info: s.Gauges("apiserver_encryption_config_controller_last_config_info",
				"[ALPHA] Information about the last applied encryption configuration with hash as label, split by "+
					"apiserver identity.", "apiserver_id_hash", "hash"),
		},
	}
}

// transformed counts one transformation. prefix is the prefix of the transformer.
func (m *Metrics) transformed(ctx context.Context, kind, prefix string, began time.Time, err error) {
	if m == nil {
		return
	}
	resource, _ := ctx.Value(resourceKey{}).(string)
	m.values.operations.WithLabelValues(resource, kind, prefix, grpcCode(err)).Inc()
	if err == nil {
		m.values.durations.WithLabelValues(kind, prefix).Observe(time.Since(began).Seconds())
	}
}

// resourceKey is the context key of the resource of a transformation, a string.
type resourceKey struct{}

// intercept returns an interceptor that measures the calls of a plug-in.
func (m *Metrics) intercept(provider string) grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption,
	) error {
		began := time.Now()
		err := invoke(ctx, method, request, reply, conn, opts...)
		m.plugins.calls.WithLabelValues(provider, method, grpcCode(err)).Observe(time.Since(began).Seconds())
		return err
	}
}

// seedGenerated measures the generation of a seed.
func (m *Metrics) seedGenerated(began time.Time, err error) {
	if err != nil {
		m.dataKeys.failures.Inc()
		return
	}
	m.dataKeys.generations.Observe(time.Since(began).Seconds())
}

// keyUsed counts a use of a plug-in's key.
func (m *Metrics) keyUsed(kind, provider, keyID string) {
	labels := []string{kind, provider, hashLabel(keyID), m.server}
	m.keys.mu.Lock()
	defer m.keys.mu.Unlock()
	if old := m.keys.used.add(labels); old != nil {
		m.keys.uses.DeleteLabelValues(old...)
		m.keys.lastUse.DeleteLabelValues(old...)
	}
	m.keys.uses.WithLabelValues(labels...).Inc()
	m.keys.lastUse.WithLabelValues(labels...).SetToCurrentTime()
}

// keyConfirmed records that a plug-in has returned its key ID.
func (m *Metrics) keyConfirmed(provider, keyID string) {
	labels := []string{provider, hashLabel(keyID), m.server}
	m.keys.mu.Lock()
	defer m.keys.mu.Unlock()
	if old := m.keys.confirmed.add(labels); old != nil {
		m.keys.lastConfirmation.DeleteLabelValues(old...)
	}
	m.keys.lastConfirmation.WithLabelValues(labels...).SetToCurrentTime()
}

// invalidKeyID counts a status with an invalid key ID.
func (m *Metrics) invalidKeyID(provider, keyID string) {
	reason := "too_long"
	if keyID == "" {
		reason = "empty"
	}
	m.plugins.invalidKeys.WithLabelValues(provider, reason).Inc()
}

// configLoaded records the configuration in use.
func (m *Metrics) configLoaded(document []byte) {
	m.config.info.Reset()
	m.config.info.WithLabelValues(m.server, hashLabel(string(document))).Set(1)
}

// configReload counts a reload; err is nil if it has succeeded.
func (m *Metrics) configReload(err error) {
	outcome := "success"
	if err != nil {
		outcome = "failure"
	}
	m.config.reloads.WithLabelValues(outcome, m.server).Inc()
	m.config.lastReload.WithLabelValues(outcome, m.server).SetToCurrentTime()
}

// hashLabel returns the label for an identity or a key ID: its SHA-256 hash, or "" for an empty text.
func hashLabel(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))
}

// grpcCode returns the status label of a transformation: "OK", the gRPC code that a plug-in has returned, or
// "unknown-non-grpc".
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

// boundedLabels is a set of label values with at most maxKeySeries elements, the oldest first.
type boundedLabels struct {
	members map[string]bool
	order   [][]string
}

// add adds labels. If there are too many elements, it removes the oldest element and returns it.
func (l *boundedLabels) add(labels []string) (old []string) {
	if l.members == nil {
		l.members = map[string]bool{}
	}
	key := fmt.Sprint(labels)
	if l.members[key] {
		return nil
	}
	l.members[key] = true
	l.order = append(l.order, labels)
	if len(l.order) <= maxKeySeries {
		return nil
	}
	old, l.order = l.order[0], l.order[1:]
	delete(l.members, fmt.Sprint(old))
	return old
}
