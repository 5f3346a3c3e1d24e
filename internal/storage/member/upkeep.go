package member

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Status is the state of a member.
type Status struct {
	// Etcd is the version of etcd, Revision the revision of the data.
	Etcd     string `json:"etcd"`
	Revision int64  `json:"revision"`
	// Index is the last entry of the log that the member has, Applied the last one that it has applied to its data.
	Index   uint64 `json:"index"`
	Applied uint64 `json:"applied"`
	// Bytes is the size of the database on disk, UsedBytes what of it has data.
	Bytes     int64 `json:"bytes"`
	UsedBytes int64 `json:"usedBytes"`
	// Alarms are what makes the cluster refuse writes, such as NOSPACE.
	Alarms []string `json:"alarms,omitempty"`
}

// Status returns the state of this member. It asks no other one.
func (m *Member) Status(ctx context.Context) (Status, error) {
	r, err := m.client.Status(ctx, "")
	if err != nil {
		return Status{}, err
	}
	s := Status{
		Etcd: r.Version, Revision: r.Header.Revision, Index: r.RaftIndex, Applied: r.RaftAppliedIndex,
		Bytes: r.DbSize, UsedBytes: r.DbSizeInUse,
	}
	for _, a := range m.server.Alarms() {
		s.Alarms = append(s.Alarms, a.Alarm.String())
	}
	return s, nil
}

// Defragment writes the database of this member anew, without the space that is free in it. Meanwhile the member answers nothing.
func (m *Member) Defragment() error { return m.server.Defragment() }

// ClearAlarm ends the refusal of writes because of space, in the whole cluster.
func (m *Member) ClearAlarm(ctx context.Context) error {
	r, err := m.client.AlarmList(ctx)
	if err != nil {
		return err
	}
	for _, a := range r.Alarms {
		if a.Alarm != pb.AlarmType_NOSPACE {
			continue
		}
		if _, err := m.client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: a.MemberID, Alarm: a.Alarm}); err != nil {
			return err
		}
	}
	return nil
}
