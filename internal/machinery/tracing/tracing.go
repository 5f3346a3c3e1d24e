// Package tracing records what the server does for a request as spans of OpenTelemetry, and sends them to a collector
// over OTLP (KEP-647). The names of spans and attributes are those of kube-apiserver where both servers do the same.
//
// A request has a span if the Tracer samples it. The other functions use the span of a context, and do nothing if the
// context has none, so no other package needs to know whether tracing is configured.
package tracing

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of the instrumentation in the spans of the server's own work.
const scope = "github.com/keelson-dev/keelson/internal/machinery/tracing"

// retireDelay is the time after Use in which spans that began before are still sent.
const retireDelay = time.Minute

// A Provider makes spans and sends them. The provider of the OpenTelemetry SDK is one (see otlp); this package does not
// import the SDK, because almost every package imports this one.
type Provider interface {
	trace.TracerProvider
	// Shutdown sends the spans that have not been sent yet. It waits at most until ctx ends.
	Shutdown(ctx context.Context) error
}

// A Tracer begins the spans of requests. Its methods may be called concurrently. A nil Tracer records nothing.
type Tracer struct {
	current atomic.Pointer[Provider]

	mu       sync.Mutex // guards what follows
	retiring map[Provider]*time.Timer
}

// New returns a Tracer that begins spans of a provider, which it owns.
func New(p Provider) *Tracer {
	t := &Tracer{retiring: map[Provider]*time.Timer{}}
	t.current.Store(&p)
	return t
}

func (t *Tracer) provider() Provider { return *t.current.Load() }

// Use makes t use the provider of other for requests that begin from now on. t owns this provider then, so other
// must not be stopped. Spans that began before are still sent by the old provider if they end within a minute.
func (t *Tracer) Use(other *Tracer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := *t.current.Swap(other.current.Load())
	t.retiring[before] = time.AfterFunc(retireDelay, func() { t.retire(before) })
}

// retire ends a provider that was replaced.
func (t *Tracer) retire(p Provider) {
	t.mu.Lock()
	_, there := t.retiring[p]
	delete(t.retiring, p)
	t.mu.Unlock()
	if there {
		ctx, cancel := context.WithTimeout(context.Background(), retireDelay)
		defer cancel()
		_ = p.Shutdown(ctx) // spans that cannot be sent are logged by the exporter
	}
}

// Stop sends the spans that have not been sent yet, and ends the connection to the collector. It waits at most
// until ctx ends.
func (t *Tracer) Stop(ctx context.Context) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	replaced := t.retiring
	t.retiring = map[Provider]*time.Timer{}
	t.mu.Unlock()
	errs := []error{t.provider().Shutdown(ctx)}
	for p, timer := range replaced {
		timer.Stop()
		errs = append(errs, p.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

// Start begins a span of the server's own work, below the span of ctx or as the first one of a trace.
func (t *Tracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, span := t.provider().Tracer(scope).Start(ctx, name, options...)
	if !span.IsRecording() {
		return ctx, Span{} // ctx records that the request is not sampled
	}
	return ctx, Span{span}
}

// enclosing is the context key of the outer span while a span of StartAround is open.
type enclosing struct{}

// StartAround is Start for a span that does not cover all later work with the returned context. EndAround ends the
// span, and later work uses the context that EndAround returns.
func (t *Tracer) StartAround(ctx context.Context, name string) (context.Context, Span) {
	outer := trace.SpanFromContext(ctx)
	ctx, span := t.Start(ctx, name)
	if outer.IsRecording() && span.Recording() {
		ctx = context.WithValue(ctx, enclosing{}, outer)
	}
	return ctx, span
}

// EndAround ends the span of ctx, and returns a context with the outer span, in which StartAround began it.
// Without an outer span it returns ctx with the ended span, so that later spans belong to the same trace.
func EndAround(ctx context.Context) context.Context {
	FromContext(ctx).End()
	if outer, ok := ctx.Value(enclosing{}).(trace.Span); ok {
		return trace.ContextWithSpan(ctx, outer)
	}
	return ctx
}

// A Span is a part of the work for a request. The zero Span records nothing. Methods may be called concurrently.
type Span struct{ span trace.Span }

// FromContext returns the recorded span of a context, or the zero Span.
func FromContext(ctx context.Context) Span {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		return Span{span}
	}
	return Span{}
}

// Start begins a span below the span of ctx. If ctx has no recorded span, it returns ctx and the zero Span.
func Start(ctx context.Context, name string) (context.Context, Span) {
	return start(ctx, name, trace.SpanKindInternal)
}

// StartClient is Start for a request to another program at address, a host with or without a port.
func StartClient(ctx context.Context, name, address string) (context.Context, Span) {
	ctx, span := start(ctx, name, trace.SpanKindClient)
	span.setServer(address)
	return ctx, span
}

func start(ctx context.Context, name string, kind trace.SpanKind) (context.Context, Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, Span{}
	}
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, name, trace.WithSpanKind(kind))
	return ctx, Span{span}
}

// Recording reports whether the span is recorded. Callers ask it before they make attributes.
func (s Span) Recording() bool { return s.span != nil }

// maxText is the number of bytes of a text that a span keeps.
const maxText = 1 << 10

// Set sets attributes. The span keeps a copy of at most 1 KiB of a text: a text may come from a request, and a part of it
// would keep all headers of the request in memory until the span is sent.
func (s Span) Set(attributes ...attribute.KeyValue) {
	if s.span == nil {
		return
	}
	for i := range attributes {
		if a := &attributes[i]; a.Value.Type() == attribute.STRING {
			text := a.Value.AsString()
			a.Value = attribute.StringValue(strings.ToValidUTF8(strings.Clone(text[:min(len(text), maxText)]), ""))
		}
	}
	s.span.SetAttributes(attributes...)
}

// Event records that something has happened now.
func (s Span) Event(name string, attributes ...attribute.KeyValue) {
	if s.span != nil {
		s.span.AddEvent(name, trace.WithAttributes(attributes...))
	}
}

// Fail records the error with which the work ended. It does nothing for nil.
func (s Span) Fail(err error) {
	if s.span != nil && err != nil {
		s.span.RecordError(err)
		s.span.SetStatus(codes.Error, err.Error())
	}
}

// FailStatus marks the span as failed, without a text, because the response has a status of a server error.
func (s Span) FailStatus() {
	if s.span != nil {
		s.span.SetStatus(codes.Error, "")
	}
}

// End ends the span. Only the first call has an effect.
func (s Span) End() {
	if s.span != nil {
		s.span.End()
	}
}
