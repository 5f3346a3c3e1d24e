package tracing

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Propagator reads and writes the headers traceparent and tracestate (W3C Trace Context) and baggage.
var Propagator propagation.TextMapPropagator = propagation.NewCompositeTextMapPropagator(
	propagation.TraceContext{}, propagation.Baggage{},
)

// Transport returns a transport that records a span for each request whose context has one, and sends the header
// traceparent with it.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper. The span ends when the header of the response is there.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !FromContext(r.Context()).Recording() {
		return t.next.RoundTrip(r)
	}
	ctx, span := start(r.Context(), "HTTP "+r.Method, trace.SpanKindClient)
	defer span.End()
	r = r.Clone(ctx) // a RoundTripper must not change the request
	Propagator.Inject(ctx, propagation.HeaderCarrier(r.Header))
	span.Set(attribute.String("http.request.method", r.Method), attribute.String("url.full", withoutSecrets(r.URL)))
	span.setServer(r.URL.Host)
	response, err := t.next.RoundTrip(r)
	if err != nil {
		span.Fail(err)
		return nil, err
	}
	span.Set(attribute.Int("http.response.status_code", response.StatusCode))
	if response.StatusCode >= http.StatusBadRequest {
		span.FailStatus()
	}
	return response, nil
}

// withoutSecrets returns a URL without the name and password of a user, and without the parameters that are credentials.
func withoutSecrets(u *url.URL) string {
	return u.Scheme + "://" + u.Host + request.RedactedURI(u)
}

// setServer sets the attributes of a server from its host and port.
func (s Span) setServer(address string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		s.Set(attribute.String("server.address", address))
		return
	}
	s.Set(attribute.String("server.address", host))
	if number, err := strconv.Atoi(port); err == nil {
		s.Set(attribute.Int("server.port", number))
	}
}

// UnaryClient records a span for each call of gRPC whose context has one.
func UnaryClient(
	ctx context.Context, method string, in, out any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	if !FromContext(ctx).Recording() {
		return invoke(ctx, method, in, out, conn, options...)
	}
	ctx, span := start(ctx, method[1:], trace.SpanKindClient) // the method begins with a slash
	defer span.End()
	span.Set(attribute.String("rpc.system.name", "grpc"), attribute.String("rpc.method", method[1:]))
	span.setServer(conn.Target())
	err := invoke(ctx, method, in, out, conn, options...)
	span.Set(attribute.String("rpc.response.status_code", status.Code(err).String()))
	span.Fail(err)
	return err
}
