package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/types"
)

// Info is what the cluster knows about a member.
type Info struct {
	ID                 uint64
	Name               string // "" if the member has never been started
	PeerURL, ClientURL string
	Learner            bool // it receives what the others have, and has no vote yet
}

// ID returns the ID of this member.
func (m *Member) ID() uint64 { return uint64(m.server.MemberID()) }

// Leader returns the ID of the leader, 0 if this member knows none.
func (m *Member) Leader() uint64 { return uint64(m.server.Leader()) }

// Cluster returns the ID of the cluster.
func (m *Member) Cluster() string { return m.server.Cluster().ID().String() }

// IDText returns an ID as etcd's tools write it.
func IDText(id uint64) string { return types.ID(id).String() }

// List returns the members in the order of their names, as a majority knows them.
func (m *Member) List(ctx context.Context) ([]Info, error) {
	r, err := m.client.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	var list []Info
	for _, e := range r.Members {
		list = append(list, Info{e.ID, e.Name, first(e.PeerURLs), first(e.ClientURLs), e.IsLearner})
	}
	slices.SortFunc(list, func(a, b Info) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return list, nil
}

// first returns the first text, "" if there is none.
func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// changePause is the time between two tries to change the membership.
const changePause = 200 * time.Millisecond

// change calls a function that changes the membership. It repeats it until ctx ends while the cluster refuses changes for a moment: etcd
// demands that a majority has been connected for 5 seconds, and that there is no other learner.
func change(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || !mayPass(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(changePause):
		}
	}
}

// mayPass reports whether a change of the membership that failed may succeed later.
func mayPass(err error) bool {
	return slices.ContainsFunc([]error{
		rpctypes.ErrTooManyLearners, rpctypes.ErrUnhealthy, rpctypes.ErrMemberNotEnoughStarted, rpctypes.ErrLeaderChanged, rpctypes.ErrNoLeader,
	}, func(e error) bool { return rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(e) })
}

// Add adds a learner, and returns its ID and all members. etcd allows one learner at a time, so Add waits until ctx ends while another one
// joins.
func (m *Member) Add(ctx context.Context, peerURL string) (id uint64, list []Info, err error) {
	err = change(ctx, func() error {
		r, err := m.client.MemberAddAsLearner(ctx, []string{peerURL})
		if err == nil {
			id = r.Member.ID
		}
		return err
	})
	if err == nil {
		list, err = m.List(ctx)
	}
	return id, list, err
}

// Promote gives a learner a vote, if it has what the others have. It reports whether it did.
func (m *Member) Promote(ctx context.Context, id uint64) (bool, error) {
	_, err := m.client.MemberPromote(ctx, id)
	if err != nil && rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrMemberLearnerNotReady) {
		return false, nil
	}
	return err == nil, err
}

// Remove removes a member. The leader gives that role to another member first. Removing a member that is not there is no error. It is
// an error if no majority would be left.
func (m *Member) Remove(ctx context.Context, id uint64) error {
	if m.Leader() == id {
		if err := m.MoveLeader(ctx, 0); err != nil {
			return fmt.Errorf("the leader cannot be removed before another member leads: %w", err)
		}
	}
	err := change(ctx, func() error {
		_, err := m.client.MemberRemove(ctx, id)
		return err
	})
	// A member that removes itself ends before it answers.
	if rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrMemberNotFound) || m.server.IsIDRemoved(id) {
		return nil
	}
	return err
}

// errAlone is the error if nobody else can lead.
var errAlone = errors.New("there is no other member with a vote that could lead")

// MoveLeader makes a member the leader; with 0, one that is not it now. It waits until it leads.
func (m *Member) MoveLeader(ctx context.Context, to uint64) error {
	leader := m.Leader()
	if leader == 0 {
		return rpctypes.ErrNoLeader
	}
	if to == leader {
		return nil
	}
	candidates := []uint64{to}
	if to == 0 {
		list, err := m.List(ctx)
		if err != nil {
			return err
		}
		candidates = nil
		for _, i := range list {
			if i.ID != leader && !i.Learner {
				candidates = append(candidates, i.ID)
			}
		}
	}
	err := errAlone
	for _, id := range candidates {
		limited, cancel := context.WithTimeout(ctx, moveTime)
		err = m.server.MoveLeader(limited, leader, id)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// moveTime is how long a member may take to become the leader. One that does not within the time of an election does not answer.
const moveTime = 2 * tickMilliseconds * electionTicks * time.Millisecond
