package member

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// RevisionGap is by how much Reset raises the revision. It is more than the members of a cluster can have assigned that the one that is
// left has not received.
const RevisionGap = 1_000_000_000

// Before is the name, in the directory of a member, of the data that it had before Reset.
const Before = "member.before-reset"

const (
	data   = "member"    // the directory of the data, in Options.Dir
	making = "resetting" // that in which Reset makes the new data
	made   = "reset"     // and its name when that is complete
)

// Known returns the members of the cluster as the data in a directory has them. No process uses the directory.
func Known(dir string, o Options) (list []Info) {
	log := etcd.Logger(o.Log)
	b := backend.NewDefaultBackend(log, database(filepath.Join(dir, data)))
	defer b.Close()
	members, _ := schema.NewMembershipBackend(log, b).MustReadMembersFromBackend()
	for id, m := range members {
		list = append(list, Info{uint64(id), m.Name, first(m.PeerURLs), first(m.ClientURLs), m.IsLearner})
	}
	return list
}

// Reset makes a new cluster of what the member in Options.Dir has, with this member alone. It has all that the member received, also what
// a majority may not have had: clients whose writes were not answered may see them. Its revision is that of the member plus RevisionGap;
// nothing is compacted. ready is called with it when all is made, and before it takes the place of what was there, which is kept as
// Before. Reset can be called again after it was interrupted.
func Reset(ctx context.Context, o Options, ready func(revision int64) error) error {
	if err := acceptAll(etcd.Logger(o.Log), o.Dir); err != nil {
		return fmt.Errorf("cannot read the log of the member: %w", err)
	}
	o.Alone = true
	m, err := Start(ctx, o)
	if err != nil {
		return err
	}
	status, err := m.Status(ctx)
	if err = errors.Join(err, m.Close()); err != nil {
		return err
	}
	temporary := filepath.Join(o.Dir, making)
	if err := os.RemoveAll(temporary); err != nil {
		return err
	}
	err = snapshot.NewV3(etcd.Logger(o.Log)).Restore(snapshot.RestoreConfig{
		SnapshotPath: database(filepath.Join(o.Dir, data)), SkipHashCheck: true,
		Name: o.Name, PeerURLs: []string{o.PeerURL}, InitialCluster: o.Name + "=" + o.PeerURL,
		// The ID of the cluster is made of this: members of the one before are not members of the new one.
		InitialClusterToken: "keelson-" + time.Now().UTC().Format(time.RFC3339Nano),
		OutputDataDir:       temporary,
	})
	if err != nil {
		return err
	}
	revision := status.Revision + RevisionGap
	raise(etcd.Logger(o.Log), database(filepath.Join(temporary, data)), revision)
	if err := ready(revision); err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(o.Dir, made)); err != nil {
		return err
	}
	return FinishReset(o.Dir)
}

// FinishReset goes on with a Reset that was interrupted when all was made. It does nothing if there is none. It comes before all else that
// is done with the directory.
func FinishReset(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, made)); err != nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, made, data)); err == nil {
		if _, err := os.Stat(filepath.Join(dir, data)); err == nil {
			if err := os.RemoveAll(filepath.Join(dir, Before)); err != nil {
				return err
			}
			if err := os.Rename(filepath.Join(dir, data), filepath.Join(dir, Before)); err != nil {
				return err
			}
		}
		if err := os.Rename(filepath.Join(dir, made, data), filepath.Join(dir, data)); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(dir, made))
}

// database returns the path of the database in a directory of data.
func database(dir string) string { return filepath.Join(dir, "snap", "db") }

// acceptAll makes all entries of the log committed. The member learns later than others which ones are: etcd would drop entries that were
// answered.
func acceptAll(log *zap.Logger, dir string) error {
	walDir := filepath.Join(dir, data, "wal")
	valid, err := wal.ValidSnapshotEntries(log, walDir)
	if err != nil {
		return err
	}
	newest, err := snap.New(log, filepath.Join(dir, data, "snap")).LoadNewestAvailable(valid)
	if err != nil && !errors.Is(err, snap.ErrNoSnapshot) {
		return err
	}
	from := &walpb.Snapshot{}
	if newest != nil {
		index, term := newest.Metadata.GetIndex(), newest.Metadata.GetTerm()
		from.Index, from.Term = &index, &term
	}
	w, state, entries, err := readLog(log, walDir, from)
	if errors.Is(err, io.ErrUnexpectedEOF) && wal.Repair(log, walDir) { // the process was killed while it wrote
		w, state, entries, err = readLog(log, walDir, from)
	}
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		last := entries[len(entries)-1].GetIndex()
		if state.GetCommit() < last {
			err = w.Save(&raftpb.HardState{Term: state.Term, Vote: state.Vote, Commit: &last}, nil)
		}
	}
	return errors.Join(err, w.Close())
}

// readLog opens a log for appending. The caller closes it unless there is an error.
func readLog(log *zap.Logger, dir string, from *walpb.Snapshot) (*wal.WAL, *raftpb.HardState, []*raftpb.Entry, error) {
	w, err := wal.Open(log, dir, from)
	if err != nil {
		return nil, nil, nil, err
	}
	_, state, entries, err := w.ReadAll()
	if err != nil {
		err = errors.Join(err, w.Close())
	}
	return w, state, entries, err
}

// raise makes a revision the newest one of a database, with an empty entry, as `etcdutl snapshot restore --bump-revision` does.
func raise(log *zap.Logger, path string, revision int64) {
	b := backend.NewDefaultBackend(log, path)
	tx := b.BatchTx()
	tx.LockOutsideApply()
	tx.UnsafePut(schema.Key, mvcc.RevToBytes(mvcc.Revision{Main: revision}, mvcc.NewRevBytes()), nil)
	tx.Unlock()
	b.ForceCommit()
	b.Close()
}
