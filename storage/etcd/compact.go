package etcd

import (
	"context"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keelson-dev/keelson/storage"
)

// compactKey is shared with the kube-apiservers on the cluster. Its version is the
// turn that the compaction is at, its value the revision compacted to in that turn.
const compactKey = "compact_rev_key"

// turn is what one API server knows about the compaction: the version of the key
// that it saw last, and the current revision at that time.
type turn struct{ version, revision int64 }

// compactor takes part in the compaction of the cluster, together with the other API servers.
func (s *Store) compactor() {
	ticker := time.NewTicker(s.opts.CompactionInterval)
	defer ticker.Stop()
	var t turn
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(s.ctx, max(s.opts.CompactionInterval, barrierTimeout))
		next, err := s.takeTurn(ctx, t)
		cancel()
		if err != nil && s.ctx.Err() == nil {
			s.opts.Logger.Warn("etcd: compaction failed, trying again at the next interval", "error", err)
			continue
		}
		t = next
	}
}

// takeTurn tries to update the key since turn t. If it succeeds, it compacts to the revision of t. It returns the
// current turn.
func (s *Store) takeTurn(ctx context.Context, t turn) (turn, error) {
	r, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.Version(compactKey), "=", t.version)).
		Then(clientv3.OpPut(compactKey, strconv.FormatInt(t.revision, 10))).
		Else(clientv3.OpGet(compactKey)).
		Commit()
	if err != nil {
		return t, s.failure(ctx, "take the turn to compact", err)
	}
	s.note(r.Header.Revision)
	next := turn{version: t.version + 1, revision: r.Header.Revision}
	if !r.Succeeded {
		kvs := rangeOf(r, 0).GetKvs()
		if len(kvs) == 0 {
			return turn{revision: r.Header.Revision}, nil // somebody removed the key
		}
		next.version = kvs[0].Version
		return next, nil
	}
	if t.revision == 0 {
		return next, nil // just started: nothing is known to be old enough
	}
	if err := s.Compact(ctx, t.revision); err != nil {
		return next, fmt.Errorf("compact to %d: %w", t.revision, err)
	}
	s.opts.Logger.Debug("etcd: compacted", "revision", t.revision)
	return next, nil
}

// compactedError returns the error of a read below the compaction revision. If this process has not compacted, it
// learns that revision from a watch that starts in the past.
func (s *Store) compactedError(ctx context.Context, revision int64) error {
	known := s.compacted.Load()
	if known <= revision {
		known = max(s.probeCompacted(ctx, revision), revision+1)
	}
	return &storage.CompactedError{Revision: revision, Compacted: known}
}

// probeCompacted returns the compaction revision, 0 if it cannot be determined.
func (s *Store) probeCompacted(ctx context.Context, revision int64) int64 {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	st, err := s.openStream(ctx, span{barrierKey, barrierKey + "\x00"}, max(revision, 1))
	for err == nil {
		r, e := st.Recv()
		if e == nil && r.CompactRevision != 0 {
			raise(&s.compacted, r.CompactRevision)
			return r.CompactRevision
		}
		err = e
	}
	return 0
}
