// Package otlp makes a tracing.Tracer of a TracingConfiguration: its spans are sent to a collector over OTLP.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/configfile"
	"github.com/keelson-dev/keelson/internal/machinery/tracing"
)

// Config is a TracingConfiguration of apiserver.config.k8s.io.
type Config struct {
	// Endpoint is where the collector listens for OTLP over gRPC without TLS, in the syntax of gRPC names; usually
	// host:port.
	Endpoint string
	// SamplingRate is the number of requests per million that have spans, unless a trusted client decides it in the
	// request.
	SamplingRate int32
	// Instance is the value of the attribute service.instance.id.
	Instance string
}

const (
	defaultEndpoint = "localhost:4317"
	million         = 1_000_000
)

var kind = configfile.Kind{
	Group: "apiserver.config.k8s.io", Name: "TracingConfiguration", Versions: []string{"v1", "v1beta1", "v1alpha1"},
}

// ReadConfig reads a file with a TracingConfiguration with read, as os.ReadFile does.
func ReadConfig(file string, read func(path string) ([]byte, error)) (Config, error) {
	text, err := read(file)
	if err != nil {
		return Config{}, fmt.Errorf("unable to read tracing configuration from %q: %w", file, err)
	}
	c, err := parse(text)
	if err != nil {
		return Config{}, fmt.Errorf("tracing configuration %s: %w", file, err)
	}
	return c, nil
}

func parse(text []byte) (Config, error) {
	var c apiserver.TracingConfiguration
	if err := kind.Decode(text, &c, &c.TypeMeta); err != nil {
		return Config{}, err
	}
	if errs := tracingapi.ValidateTracingConfiguration(&c.TracingConfiguration, nil, nil); len(errs) > 0 {
		return Config{}, errs.ToAggregate()
	}
	return Config{
		Endpoint: ptr.Deref(c.Endpoint, defaultEndpoint), SamplingRate: ptr.Deref(c.SamplingRatePerMillion, 0),
	}, nil
}

// New returns a Tracer. It connects to the collector when it has spans to send. The variables of the environment that
// OpenTelemetry defines for exporters and resources apply, such as OTEL_EXPORTER_OTLP_HEADERS and
// OTEL_RESOURCE_ATTRIBUTES.
func New(ctx context.Context, c Config, log *slog.Logger) (*tracing.Tracer, error) {
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(c.Endpoint), otlptracegrpc.WithInsecure())
	if err != nil {
		return nil, err
	}
	described, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "apiserver"), attribute.String("service.instance.id", c.Instance),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	sampler := sdk.NeverSample()
	if c.SamplingRate > 0 {
		sampler = sdk.TraceIDRatioBased(float64(c.SamplingRate) / million)
	}
	return tracing.New(sdk.NewTracerProvider(
		sdk.WithBatcher(&loggingExporter{SpanExporter: exporter, log: log}), sdk.WithSampler(sdk.ParentBased(sampler)), sdk.WithResource(described),
	)), nil
}

// loggingExporter logs that spans cannot be sent, at most once in logPause, instead of calling the error handler of the
// process.
type loggingExporter struct {
	sdk.SpanExporter
	log *slog.Logger
	// logged is when an error was last logged. The batch processor makes one call after the other.
	logged time.Time
}

const logPause = time.Minute

// ExportSpans implements sdk.SpanExporter.
func (e *loggingExporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err != nil && !errors.Is(err, context.Canceled) && time.Since(e.logged) > logPause {
		e.logged = time.Now()
		e.log.Warn("spans could not be sent to the collector and are lost", "spans", len(spans), "error", err)
	}
	return nil
}
