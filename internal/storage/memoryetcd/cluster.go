package memoryetcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// cluster is the service of the list of members. There is one member, and this cannot be changed.
type cluster struct {
	pb.UnimplementedClusterServer
	*Server
}

// MemberList implements pb.ClusterServer.
func (c *cluster) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	return &pb.MemberListResponse{Header: c.header(), Members: []*pb.Member{
		{ID: memberID, Name: c.Name, ClientURLs: c.ClientURLs, PeerURLs: c.PeerURLs},
	}}, nil
}

// maintenance is the service of the state of the member.
type maintenance struct {
	pb.UnimplementedMaintenanceServer
	*Server
}

// Status implements pb.MaintenanceServer.
func (m *maintenance) Status(context.Context, *pb.StatusRequest) (out *pb.StatusResponse, err error) {
	err = m.read(func(s *state) error {
		out = &pb.StatusResponse{
			Header: header(s.revision), Version: Version, StorageVersion: "3.6.0", DbSize: s.bytes, DbSizeInUse: s.bytes,
			Leader: memberID, RaftTerm: raftTerm, RaftIndex: uint64(s.revision), RaftAppliedIndex: uint64(s.revision),
		}
		return nil
	})
	return out, err
}

// Alarm implements pb.MaintenanceServer. No alarm is ever raised.
func (m *maintenance) Alarm(context.Context, *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	return &pb.AlarmResponse{Header: m.header()}, nil
}

// Defragment implements pb.MaintenanceServer. It does nothing, because there is no file.
func (m *maintenance) Defragment(context.Context, *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	return &pb.DefragmentResponse{Header: m.header()}, nil
}
