package etcd

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	clientsnapshot "go.etcd.io/etcd/client/v3/snapshot"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// TestSnapshots moves the data of a store to a real etcd, writes there, and moves it back.
func TestSnapshots(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	from := embeddedStore(t, embedded.Options{InMemory: true})
	for i := range 3000 {
		op := storage.Op{Key: fmt.Sprintf("/registry/configmaps/default/c%04d", i*7%2000), Value: fmt.Append(nil, i)}
		if i%10 == 0 {
			op.TTL = 10_000
		}
		if i%11 == 0 {
			op = storage.Delete(op.Key)
		}
		if _, err := from.Commit(ctx, storage.Txn{Ops: []storage.Op{op}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := from.Commit(
		ctx, storage.Txn{Ops: []storage.Op{storage.Delete("/registry/configmaps/default/c0001")}},
	); err != nil {
		t.Fatal(err)
	}
	there, back := filepath.Join(dir, "there.db"), filepath.Join(dir, "back.db")
	export, err := from.Export(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backup.ExportEtcd(ctx, there, "/registry", export, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := export.Close(); err != nil {
		t.Fatal(err)
	}

	// etcdutl must accept the file and restore it.
	status, err := snapshot.NewV3(zap.NewNop()).Status(there)
	if err != nil || status.Revision > revisionOf(t, from) || status.TotalKey == 0 || status.Version != "3.6.0" {
		t.Fatalf("status %+v, %v", status, err)
	}
	c := restored(t, there)
	on := c.open(t, etcd.Options{})
	compare(t, from, on)
	if got := revisionOf(t, on); got != revisionOf(t, from) {
		t.Errorf("etcd is at revision %d, the store at %d", got, revisionOf(t, from))
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: c.endpoints(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	leases, err := client.Leases(ctx)
	if err != nil || len(leases.Leases) == 0 {
		t.Fatalf("leases: %+v, %v", leases, err)
	}
	left, err := client.TimeToLive(ctx, leases.Leases[0].ID, clientv3.WithAttachedKeys())
	if err != nil || left.TTL < 9000 || left.TTL > 10_002 || len(left.Keys) == 0 {
		t.Errorf("a lease: %+v, %v", left, err)
	}

	// More changes are written to etcd, and the data is moved back.
	for i := range 100 {
		key := fmt.Sprintf("/registry/configmaps/default/c%04d", i)
		if _, err := on.Commit(
			ctx, storage.Txn{Ops: []storage.Op{storage.Put(key, []byte("changed")), storage.Delete(key + "0")}},
		); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Put(ctx, "/elsewhere", "not of the API server"); err != nil {
		t.Fatal(err)
	}
	if _, err := clientsnapshot.SaveWithVersion(
		ctx, zap.NewNop(), clientv3.Config{Endpoints: c.endpoints()[:1]}, back,
	); err != nil {
		t.Fatal(err)
	}
	for _, keep := range []bool{true, false} {
		o := embedded.Options{Dir: filepath.Join(dir, fmt.Sprint(keep))}
		result, others, err := backup.ImportEtcd(ctx, back, o, backup.EtcdOptions{
			Prefix: "/registry", Restore: backup.RestoreOptions{Now: time.Now(), KeepRevisions: keep},
		})
		if err != nil || others != 1 {
			t.Fatalf("%+v, %d others, %v", result, others, err)
		}
		to := embeddedStore(t, o)
		if keep {
			compare(t, on, to)
		}
		if got, was := revisionOf(t, to), revisionOf(t, on); keep && got != was || !keep && got < was+1_000_000_000 {
			t.Errorf("keep %v: the store is at revision %d, etcd was at %d", keep, got, was)
		}
	}
}

func embeddedStore(t *testing.T, o embedded.Options) *embedded.Store {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	s, err := embedded.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the error does not matter
	return s
}

// restored runs a cluster of one member on a snapshot.
func restored(t *testing.T, path string) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), members: []*member{{name: "m0", client: freeURL(t), peer: freeURL(t)}}}
	m := c.members[0]
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: path, Name: m.name, OutputDataDir: filepath.Join(c.dir, m.name), PeerURLs: []string{m.peer.String()},
		InitialCluster: m.name + "=" + m.peer.String(), InitialClusterToken: "etcd-cluster",
	})
	if err != nil {
		t.Fatalf("etcdutl snapshot restore: %v", err)
	}
	c.launch(0, embed.ClusterStateFlagNew)
	c.awaitReady(0)
	t.Cleanup(func() { c.stop(0) })
	return c
}

func revisionOf(t *testing.T, s storage.Store) int64 {
	t.Helper()
	r, err := s.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// compare checks that two stores have the same entries, including revisions.
func compare(t *testing.T, a, b storage.Store) {
	t.Helper()
	all := func(s storage.Store) []storage.Entry {
		r, err := s.Range(
			context.Background(), storage.RangeRequest{Start: "/registry/", End: storage.PrefixEnd("/registry/")},
		)
		if err != nil {
			t.Fatal(err)
		}
		return r.Entries
	}
	want, got := all(a), all(b)
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d", len(got), len(want))
	}
	for i, e := range want {
		if g := got[i]; g.Key != e.Key || !bytes.Equal(g.Value, e.Value) || g.ModRevision != e.ModRevision ||
			g.CreateRevision != e.CreateRevision {
			t.Errorf("%+v, want %+v", g, e)
		}
	}
}
