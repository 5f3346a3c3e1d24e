package memoryetcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// keyValues is the service of keys.
type keyValues struct {
	pb.UnimplementedKVServer
	*Server
}

// Range implements pb.KVServer.
func (k *keyValues) Range(_ context.Context, r *pb.RangeRequest) (out *pb.RangeResponse, err error) {
	err = k.read(func(s *state) error {
		if err := s.checkRange(r); err != nil {
			return err
		}
		out = s.readRange(r, s.revision)
		out.Header = header(s.revision)
		return nil
	})
	return out, err
}

// streamedKeys is the number of keys in one part of a streamed range.
const streamedKeys = 1000

// RangeStream implements pb.KVServer. It sends the keys of Range in parts. Only the last part has the header, the
// count, and whether there are more keys.
func (k *keyValues) RangeStream(r *pb.RangeRequest, stream grpc.ServerStreamingServer[pb.RangeStreamResponse]) error {
	whole, err := k.Range(stream.Context(), r)
	if err != nil {
		return err
	}
	kvs := whole.Kvs
	for len(kvs) > streamedKeys {
		part := &pb.RangeResponse{Kvs: kvs[:streamedKeys]}
		if err := stream.Send(&pb.RangeStreamResponse{RangeResponse: part}); err != nil {
			return err
		}
		kvs = kvs[streamedKeys:]
	}
	whole.Kvs = kvs
	return stream.Send(&pb.RangeStreamResponse{RangeResponse: whole})
}

// fits returns an error if a request that writes is too large.
func (s *Server) fits(request proto.Message) error {
	if proto.Size(request) > s.MaxRequestBytes {
		return rpctypes.ErrGRPCRequestTooLarge
	}
	return nil
}

// Put implements pb.KVServer.
func (k *keyValues) Put(_ context.Context, r *pb.PutRequest) (out *pb.PutResponse, err error) {
	if err := k.fits(r); err != nil {
		return nil, err
	}
	err = k.update(func(s *state) error {
		if err := s.checkPut(r); err != nil {
			return err
		}
		return s.write(func(w *writer) error {
			out = w.put(r)
			out.Header = header(w.current())
			return nil
		})
	})
	return out, err
}

// DeleteRange implements pb.KVServer.
func (k *keyValues) DeleteRange(_ context.Context, r *pb.DeleteRangeRequest) (out *pb.DeleteRangeResponse, err error) {
	if len(r.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	err = k.update(func(s *state) error {
		return s.write(func(w *writer) error {
			out = w.deleteRange(r)
			out.Header = header(w.current())
			return nil
		})
	})
	return out, err
}

// Txn implements pb.KVServer.
func (k *keyValues) Txn(_ context.Context, r *pb.TxnRequest) (out *pb.TxnResponse, err error) {
	if err := k.fits(r); err != nil {
		return nil, err
	}
	if err := checkTransaction(r, k.MaxTxnOps); err != nil {
		return nil, err
	}
	err = k.update(func(s *state) error {
		return s.write(func(w *writer) (err error) {
			out, err = w.transact(r)
			return err
		})
	})
	return out, err
}

// Compact implements pb.KVServer.
func (k *keyValues) Compact(_ context.Context, r *pb.CompactionRequest) (out *pb.CompactionResponse, err error) {
	err = k.update(func(s *state) error {
		out = &pb.CompactionResponse{Header: header(s.revision)}
		return s.compact(r.Revision)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
