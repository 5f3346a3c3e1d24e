package etcd

import (
	"context"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keelson-dev/keelson/internal/storage"
)

// compactKey is shared with the kube-apiservers of the cluster. Each update of the key by an API server is a turn:
// the version of the key is the number of the turn, and its value is the revision to which that turn compacts.
const compactKey = "compact_rev_key"

// compactionTurn is a turn that an API server has observed: the version of the key, and the current revision at
// that time.
type compactionTurn struct{ version, revision int64 }

// runCompactor takes part in the compaction of the cluster, together with the other API servers.
func (s *Store) runCompactor() {
	ticker := time.NewTicker(s.opts.CompactionInterval)
	defer ticker.Stop()
	var t compactionTurn
	for {
		select {
		case <-s.lifetime.ctx.Done():
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(s.lifetime.ctx, max(s.opts.CompactionInterval, revisionTimeout))
		next, err := s.takeTurn(ctx, t)
		cancel()
		if err != nil && s.lifetime.ctx.Err() == nil {
			s.opts.Logger.Warn("etcd: compaction failed, trying again at the next interval", "error", err)
			continue
		}
		t = next
	}
}

// takeTurn tries to update the key, on condition that its version is that of t. If it succeeds, it compacts to the
// revision of t. It returns the turn that it has observed.
//
// Example: two servers have observed version 7 at revision 1000. At the next interval the first server writes
// version 8 and compacts to revision 1000. The second server fails to write, and observes version 8.
func (s *Store) takeTurn(ctx context.Context, t compactionTurn) (compactionTurn, error) {
	r, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.Version(compactKey), "=", t.version)).
		Then(clientv3.OpPut(compactKey, strconv.FormatInt(t.revision, 10))).
		Else(clientv3.OpGet(compactKey)).
		Commit()
	if err != nil {
		return t, s.convertError(ctx, "take the turn to compact", err)
	}
	s.observe(r.Header.Revision)
	next := compactionTurn{version: t.version + 1, revision: r.Header.Revision}
	if !r.Succeeded {
		kvs := rangeResponse(r, 0).GetKvs()
		if len(kvs) == 0 {
			return compactionTurn{revision: r.Header.Revision}, nil // the key was removed
		}
		next.version = kvs[0].Version
		return next, nil
	}
	if t.revision == 0 {
		return next, nil // this process has just started and knows no old revision
	}
	if err := s.Compact(ctx, t.revision); err != nil {
		return next, fmt.Errorf("compact to %d: %w", t.revision, err)
	}
	s.opts.Logger.Debug("etcd: compacted", "revision", t.revision)
	return next, nil
}

// compactedError returns the error of a read below the compaction revision. If this process does not know that
// revision, it learns it from a watch that starts in the past.
func (s *Store) compactedError(ctx context.Context, revision int64) error {
	known := s.observed.compacted.Load()
	if known <= revision {
		known = max(s.probeCompacted(ctx, revision), revision+1)
	}
	return &storage.CompactedError{Revision: revision, Compacted: known}
}

// probeCompacted returns the compaction revision, or 0 if it cannot be determined. It starts a watch at revision,
// which etcd refuses with the compaction revision.
func (s *Store) probeCompacted(ctx context.Context, revision int64) int64 {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	st, err := s.openStream(ctx, span{missingKey, missingKey + "\x00"}, max(revision, 1))
	for err == nil {
		r, e := st.Recv()
		if e == nil && r.CompactRevision != 0 {
			raiseTo(&s.observed.compacted, r.CompactRevision)
			return r.CompactRevision
		}
		err = e
	}
	return 0
}
