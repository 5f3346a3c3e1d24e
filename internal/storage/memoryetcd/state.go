package memoryetcd

import (
	"sort"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// version is the value of a key from a revision on. A nil kv means that the key was deleted. kv is never changed.
type version struct {
	revision int64
	kv       *mvccpb.KeyValue
}

// versions has the versions of a key, the oldest first.
type versions struct {
	key      string
	versions []version
}

// at returns what the key was at a revision, nil if it did not exist.
func (v *versions) at(revision int64) *mvccpb.KeyValue {
	i := sort.Search(len(v.versions), func(i int) bool { return v.versions[i].revision > revision })
	if i == 0 {
		return nil
	}
	return v.versions[i-1].kv
}

// state is the content: all keys with their versions, and the log of changes. Each revision after the first has exactly
// one entry in the log.
//
// Example: after put(a), put(b), delete(a) the revision is 4 and the log has one event for each of the revisions
// 2, 3 and 4. After the compaction of revision 3, only the deletion of a is left, b is unchanged, and the log
// begins at 3.
type state struct {
	keys     index
	revision int64
	// compacted is the first revision that can be read; -1 if there was no compaction.
	compacted int64
	// log[i] has the events of revision logStart+i.
	log      [][]*mvccpb.Event
	logStart int64
	leases   leases
	bytes    int64 // keys and values of all versions
}

func newState() *state {
	const firstRevision = 1 // of an empty etcd
	return &state{revision: firstRevision, compacted: -1, logStart: firstRevision + 1, leases: newLeases()}
}

// checkRevision returns an error if a revision cannot be read. 0 means the current revision.
func (s *state) checkRevision(revision int64) error {
	switch {
	case revision > s.revision:
		return rpctypes.ErrGRPCFutureRev
	case revision > 0 && revision < s.compacted:
		return rpctypes.ErrGRPCCompacted
	}
	return nil
}

// compact removes the versions that reads at revision or later do not need.
func (s *state) compact(revision int64) error {
	switch {
	case revision > s.revision:
		return rpctypes.ErrGRPCFutureRev
	case revision <= s.compacted:
		return rpctypes.ErrGRPCCompacted
	}
	s.compacted = revision
	s.keys.retain(func(h *versions) bool {
		first := sort.Search(len(h.versions), func(i int) bool { return h.versions[i].revision > revision }) - 1
		if first >= 0 && h.versions[first].kv == nil {
			first++ // without this deletion the key is missing as well
		}
		for _, v := range h.versions[:max(first, 0)] {
			s.bytes -= v.size(h.key)
		}
		h.versions = append([]version(nil), h.versions[max(first, 0):]...)
		return len(h.versions) > 0
	})
	if drop := revision - s.logStart; drop > 0 {
		s.log = append([][]*mvccpb.Event(nil), s.log[drop:]...)
		s.logStart = revision
	}
	return nil
}

// size returns the memory of the data of a version, in bytes.
func (v version) size(key string) int64 {
	if v.kv == nil {
		return int64(len(key))
	}
	return int64(len(key) + len(v.kv.Value))
}

// maxEventBytes and maxEventRevisions limit the result of one call of events.
const (
	maxEventBytes     = 1 << 20
	maxEventRevisions = 1000
)

// events returns the events of keys in a span, from revision from on, for which keep returns true. It also returns
// the revision up to which the result is complete. It returns all such events of a revision or none. from must not
// be less than logStart.
func (s *state) events(in span, from int64, keep func(*mvccpb.Event) bool) (out []*mvccpb.Event, upTo int64) {
	size := 0
	upTo = from - 1
	for upTo < s.revision && upTo-from < maxEventRevisions && size < maxEventBytes {
		upTo++
		for _, e := range s.log[upTo-s.logStart] {
			if in.contains(string(e.Kv.Key)) && keep(e) {
				out = append(out, e)
				size += len(e.Kv.Value)
			}
		}
	}
	return out, upTo
}

// header returns the header of a response that reflects a revision.
func header(revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: clusterID, MemberId: memberID, RaftTerm: raftTerm, Revision: revision}
}
