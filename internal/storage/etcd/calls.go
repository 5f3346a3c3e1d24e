package etcd

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// A Recorder records what the client of a cluster does, for metrics. Its methods may be called concurrently, and must not
// block. kind is unary, client_stream, server_stream or bidi_stream, and method the full name of a gRPC method, such as
// /etcdserverpb.KV/Txn.
type Recorder interface {
	// CallStarted is called before a call, MessageSent and MessageReceived for each of its messages.
	CallStarted(kind, method string)
	MessageSent(kind, method string)
	MessageReceived(kind, method string)
	// CallEnded is called after a call. code is the name of its gRPC code, such as OK or Unavailable.
	CallEnded(kind, method, code string)
	// LeaseFull is called when a new lease replaces one for the same time to live. keys is the number of keys of
	// the old lease.
	LeaseFull(keys int)
}

// recordUnary returns an interceptor that records unary calls.
func recordUnary(r Recorder) grpc.UnaryClientInterceptor {
	const kind = "unary"
	return func(
		ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker,
		opts ...grpc.CallOption,
	) error {
		r.CallStarted(kind, method)
		r.MessageSent(kind, method)
		err := call(ctx, method, request, reply, conn, opts...)
		if err == nil {
			r.MessageReceived(kind, method)
		}
		r.CallEnded(kind, method, status.Code(err).String())
		return err
	}
}

func recordStreams(r Recorder) grpc.StreamClientInterceptor {
	return func(
		ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
		opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		kind := streamKind(desc)
		r.CallStarted(kind, method)
		stream, err := open(ctx, desc, conn, method, opts...)
		if err != nil {
			r.CallEnded(kind, method, status.Code(err).String())
			return nil, err
		}
		return &recordedStream{ClientStream: stream, recorder: r, kind: kind, method: method}, nil
	}
}

func streamKind(desc *grpc.StreamDesc) string {
	switch {
	case desc.ClientStreams && desc.ServerStreams:
		return "bidi_stream"
	case desc.ClientStreams:
		return "client_stream"
	}
	return "server_stream"
}

// A recordedStream records the messages of a stream and its end, which is the first error of RecvMsg.
type recordedStream struct {
	grpc.ClientStream
	recorder     Recorder
	kind, method string
	ended        bool // used by RecvMsg only, which one goroutine calls at a time
}

func (s *recordedStream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	if err == nil {
		s.recorder.MessageSent(s.kind, s.method)
	}
	return err
}

func (s *recordedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch {
	case err == nil:
		s.recorder.MessageReceived(s.kind, s.method)
	case !s.ended:
		s.ended = true
		code := status.Code(err)
		if errors.Is(err, io.EOF) {
			code = 0
		}
		s.recorder.CallEnded(s.kind, s.method, code.String())
	}
	return err
}
