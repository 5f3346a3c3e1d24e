// Package tracing has the filters that record the spans of requests.
package tracing

import (
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/keelson-dev/keelson/internal/gateway/filter/requestmetrics"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
	"github.com/keelson-dev/keelson/internal/machinery/tracing"
)

// Server returns the filter that records a request as a span; nil without a Tracer. It comes after authentication,
// because only requests of members of system:masters may continue the trace of the client. Other requests begin a new
// trace, with a link to the client's.
func Server(t *tracing.Tracer) func(http.Handler) http.Handler {
	if t == nil {
		return nil
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rw := responserecorder.Wrap(w)
			options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
			incoming, known := tracing.Propagator, trusted(request.UserFrom(r.Context()))
			if !known {
				incoming = propagation.TraceContext{} // baggage would be sent on, to webhooks for instance
			}
			ctx := incoming.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
			if !known {
				options = append(options, trace.WithNewRoot())
				if remote := trace.SpanContextFromContext(ctx); remote.IsRemote() {
					options = append(options, trace.WithLinks(trace.Link{SpanContext: remote}))
				}
			}
			ctx, span := t.Start(ctx, spanName(r, request.InfoFrom(ctx)), options...)
			defer span.End()
			r = r.WithContext(ctx)
			if span.Recording() {
				setRequest(span, r, rw)
				defer func() { setResponse(span, r, rw) }()
			}
			next.ServeHTTP(rw, r)
		})
	}
}

func trusted(u *request.User) bool {
	return u != nil && slices.Contains(u.Groups, request.GroupMasters)
}

// spanName returns the method and, for a resource, its path without the names.
func spanName(r *http.Request, info *request.Info) string {
	if info == nil || !info.IsResource() {
		return strings.Clone(r.Method) // it is a part of the line with the path
	}
	parts := []string{r.Method + " "}
	if info.Group == "" {
		parts = append(parts, "api")
	} else {
		parts = append(parts, "apis", info.Group)
	}
	parts = append(parts, info.Version)
	if info.Namespace != "" {
		parts = append(parts, "namespaces", "{:namespace}")
	}
	parts = append(parts, info.Resource)
	if info.Name != "" {
		parts = append(parts, "{:name}")
	}
	if info.Subresource != "" {
		parts = append(parts, info.Subresource)
	}
	return strings.Join(parts, "/")
}

func setRequest(span tracing.Span, r *http.Request, w http.ResponseWriter) {
	span.Set(
		attribute.String("http.request.method", r.Method), attribute.String("url.scheme", "https"),
		attribute.String("url.path", r.URL.Path), attribute.String("http.target", request.RedactedURI(r.URL)),
		attribute.String("user_agent.original", r.UserAgent()),
		attribute.String("network.protocol.version", strings.TrimPrefix(r.Proto, "HTTP/")),
		attribute.String("audit-id", w.Header().Get("Audit-Id")),
	)
	host, port := split(r.Host)
	span.Set(attribute.String("server.address", host))
	if port > 0 {
		span.Set(attribute.Int("server.port", port))
	}
	peer, port := split(r.RemoteAddr)
	span.Set(attribute.String("network.peer.address", peer), attribute.String("client.address", peer))
	if port > 0 {
		span.Set(attribute.Int("network.peer.port", port))
	}
}

// split returns the host and the port of an address; the port is 0 if there is none.
func split(address string) (string, int) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address, 0
	}
	number, _ := strconv.Atoi(port) // 0 if it is not a number
	return host, number
}

func setResponse(span tracing.Span, r *http.Request, w *responserecorder.Recorder) {
	if tracker := request.TrackerFrom(r.Context()); tracker != nil && tracker.Body() > 0 {
		span.Set(attribute.Int64("http.request.body.size", tracker.Body()))
	}
	status := w.Status
	if status == 0 {
		status = http.StatusOK // net/http sends it when the handler returns
	}
	span.Set(attribute.Int("http.response.status_code", status), attribute.Int64("http.response.body.size", w.Bytes))
	if status >= http.StatusInternalServerError {
		span.FailStatus()
	}
}

// Each returns filters that record a span for the time between the call of a filter and its call of the next one,
// or its end if it does not call the next one. Without a Tracer they are the filters themselves.
func Each(t *tracing.Tracer, filters []requestmetrics.Named) []requestmetrics.Named {
	if t == nil {
		return filters
	}
	out := slices.Clone(filters)
	for i := range out {
		if filter := out[i].Filter; filter != nil && out[i].Name != "" {
			out[i].Filter = timed(t, out[i].Name, filter)
		}
	}
	return out
}

func timed(t *tracing.Tracer, name string, filter func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		h := filter(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(tracing.EndAround(r.Context())))
		}))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, span := t.StartAround(r.Context(), name)
			defer span.End() // if the filter has answered the request
			h.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}
