package etcd

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/keelson-dev/keelson/internal/machinery/tracing"
)

// traced records a span for each gRPC call whose context already has a span.
func traced(
	ctx context.Context, method string, in, out any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	if !tracing.FromContext(ctx).Recording() {
		return invoke(ctx, method, in, out, conn, options...)
	}
	ctx, span := tracing.StartClient(ctx, method[1:], conn.Target()) // the method begins with a slash
	defer span.End()
	span.Set(attribute.String("rpc.system.name", "grpc"), attribute.String("rpc.method", method[1:]))
	err := invoke(ctx, method, in, out, conn, options...)
	span.Set(attribute.String("rpc.response.status_code", status.Code(err).String()))
	span.Fail(err)
	return err
}
