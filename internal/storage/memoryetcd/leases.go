package memoryetcd

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// leaseService is the service of leases.
type leaseService struct {
	pb.UnimplementedLeaseServer
	*Server
}

// LeaseGrant implements pb.LeaseServer.
func (s *leaseService) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (out *pb.LeaseGrantResponse, err error) {
	err = s.update(func(st *state) error {
		id, ttl, err := st.leases.grant(r.ID, r.TTL, s.Now())
		out = &pb.LeaseGrantResponse{Header: header(st.revision), ID: id, TTL: ttl}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// revoke removes a lease and deletes its keys in one revision.
func (s *Server) revoke(id int64) error {
	return s.update(func(st *state) error {
		keys, err := st.leases.remove(id)
		if err != nil {
			return err
		}
		return st.write(func(w *writer) error {
			for _, key := range keys {
				w.deleteRange(&pb.DeleteRangeRequest{Key: []byte(key)})
			}
			return nil
		})
	})
}

// LeaseRevoke implements pb.LeaseServer.
func (s *leaseService) LeaseRevoke(_ context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	if err := s.revoke(r.ID); err != nil {
		return nil, err
	}
	return &pb.LeaseRevokeResponse{Header: s.header()}, nil
}

// header returns the header of a response that reflects the current state.
func (s *Server) header() (out *pb.ResponseHeader) {
	_ = s.read(func(st *state) error { out = header(st.revision); return nil })
	return out
}

// LeaseKeepAlive implements pb.LeaseServer.
func (s *leaseService) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		out := &pb.LeaseKeepAliveResponse{ID: r.ID}
		_ = s.update(func(st *state) error {
			out.Header, out.TTL = header(st.revision), st.leases.keepAlive(r.ID, s.Now())
			return nil
		})
		if err := stream.Send(out); err != nil {
			return err
		}
	}
}

// LeaseTimeToLive implements pb.LeaseServer.
func (s *leaseService) LeaseTimeToLive(
	_ context.Context, r *pb.LeaseTimeToLiveRequest,
) (out *pb.LeaseTimeToLiveResponse, err error) {
	err = s.read(func(st *state) error {
		out = &pb.LeaseTimeToLiveResponse{Header: header(st.revision), ID: r.ID, TTL: -1}
		found := st.leases.byID[r.ID]
		if found == nil {
			return nil
		}
		out.TTL, out.GrantedTTL = found.remaining(s.Now()), found.ttl
		if r.Keys {
			for _, key := range slices.Sorted(maps.Keys(found.keys)) {
				out.Keys = append(out.Keys, []byte(key))
			}
		}
		return nil
	})
	return out, err
}

// LeaseLeases implements pb.LeaseServer.
func (s *leaseService) LeaseLeases(
	context.Context, *pb.LeaseLeasesRequest,
) (out *pb.LeaseLeasesResponse, err error) {
	err = s.read(func(st *state) error {
		out = &pb.LeaseLeasesResponse{Header: header(st.revision)}
		for _, id := range slices.Sorted(maps.Keys(st.leases.byID)) {
			out.Leases = append(out.Leases, &pb.LeaseStatus{ID: id})
		}
		return nil
	})
	return out, err
}
