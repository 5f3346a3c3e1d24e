package member

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/certs"
)

// options returns the options of the first member of a cluster, whose certificates are in a directory.
func options(t *testing.T, name, pki string) Options {
	t.Helper()
	files, err := certs.Member(certs.Options{Dir: pki, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := l.Addr().String()
	o := Options{
		Dir: t.TempDir(), Name: name, PeerURL: "https://" + address, ClientURL: "https://127.0.0.1:1", Listen: address,
		CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA, Handler: http.NotFoundHandler(),
		OnFailure: func(err error) { t.Errorf("%s: %v", name, err) }, Log: slog.New(slog.DiscardHandler),
	}
	o.Cluster = map[string]string{name: o.PeerURL}
	return o
}

// started starts a member, and closes it at the end of the test.
func started(t *testing.T, o Options) *Member {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	m, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, m) })
	return m
}

func stop(t *testing.T, m *Member) {
	t.Helper()
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func put(t *testing.T, m *Member, key string) {
	t.Helper()
	if _, err := m.client.Put(t.Context(), key, "value of "+key); err != nil {
		t.Fatal(err)
	}
}

// keys returns the keys of a cluster, and its revision.
func keys(t *testing.T, m *Member) (list []string, revision int64) {
	t.Helper()
	r, err := m.client.Get(t.Context(), "k", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range r.Kvs {
		list = append(list, string(kv.Key))
	}
	return list, r.Header.Revision
}

// join adds a member to the cluster of another one, and gives it a vote.
func join(t *testing.T, m *Member, o Options) *Member {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	id, list, err := m.Add(ctx, o.PeerURL)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		if i.ID != id {
			o.Cluster[i.Name] = i.PeerURL
		}
	}
	o.Joins = true
	joined := started(t, o)
	wait.Seen(t, "a vote", func() (bool, string) {
		is, err := m.Promote(ctx, id)
		return is, "no vote: " + errText(err)
	})
	return joined
}

func errText(err error) string {
	if err == nil {
		return "it lacks data"
	}
	return err.Error()
}

// TestReset leaves one of two members alone, with an entry of the log that the other one has not acknowledged: it may have been answered,
// so it must not be lost. The reset is interrupted when all is made.
func TestReset(t *testing.T) {
	pki := t.TempDir()
	o := options(t, "a", pki)
	a := started(t, o)
	put(t, a, "k1")
	b := join(t, a, options(t, "b", pki))
	put(t, b, "k2")
	_, revision := keys(t, b)
	if err := a.MoveLeader(t.Context(), a.ID()); err != nil {
		t.Fatal(err)
	}
	stop(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := a.client.Put(ctx, "k3", "not acknowledged by b"); err == nil {
		t.Fatal("a write was answered without a majority")
	}
	stop(t, a)

	if list := Known(o.Dir, o); len(list) != 2 {
		t.Errorf("%+v", list)
	}
	interrupted := errors.New("interrupted")
	var promised int64
	err := Reset(t.Context(), o, func(r int64) error {
		promised = r
		return interrupted
	})
	if !errors.Is(err, interrupted) {
		t.Fatal(err)
	}
	if err := Reset(t.Context(), o, func(r int64) error { return nil }); err != nil {
		t.Fatal(err)
	}
	// As if the process had been killed between the two renames.
	if err := os.Mkdir(filepath.Join(o.Dir, made), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(o.Dir, data), filepath.Join(o.Dir, made, data)); err != nil {
		t.Fatal(err)
	}
	if !HasData(o.Dir) {
		t.Error("the data that was made is not seen")
	}
	if err := FinishReset(o.Dir); err != nil {
		t.Fatal(err)
	}
	a = started(t, o)
	list, now := keys(t, a)
	if !slices.Equal(list, []string{"k1", "k2", "k3"}) || now != promised || now != revision+1+RevisionGap {
		t.Errorf("%v at revision %d; promised were %d, and it was %d", list, now, promised, revision)
	}
	put(t, a, "k4")
	if members, err := a.List(t.Context()); err != nil || len(members) != 1 {
		t.Errorf("%+v, %v", members, err)
	}
	c := join(t, a, options(t, "c", pki))
	if list, now := keys(t, c); len(list) != 4 || now != promised+1 {
		t.Errorf("a member that joins has %v at %d", list, now)
	}
	if s, err := c.Status(t.Context()); err != nil || s.Revision != promised+1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestMembership checks who may be removed and lead.
func TestMembership(t *testing.T) {
	pki := t.TempDir()
	a := started(t, options(t, "a", pki))
	if err := a.MoveLeader(t.Context(), 0); !errors.Is(err, errAlone) {
		t.Errorf("the only member does not lead any more: %v", err)
	}
	ob := options(t, "b", pki)
	failed := make(chan error, 1)
	ob.OnFailure = func(err error) { failed <- err }
	b := join(t, a, ob)
	if err := a.MoveLeader(t.Context(), 0); err != nil || a.Leader() != b.ID() {
		t.Errorf("%v leads: %v", IDText(a.Leader()), err)
	}
	put(t, a, "k1")
	if err := b.Remove(t.Context(), b.ID()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		if !errors.Is(err, ErrRemoved) {
			t.Error(err)
		}
	case <-time.After(wait.Limit):
		t.Fatal("a member does not learn that it was removed")
	}
	if err := a.Remove(t.Context(), b.ID()); err != nil {
		t.Errorf("removing a member twice: %v", err)
	}
	put(t, a, "k2")
	if err := errors.Join(a.Defragment(), a.ClearAlarm(t.Context())); err != nil {
		t.Error(err)
	}
	if list, _ := keys(t, a); len(list) != 2 {
		t.Errorf("%v", list)
	}
}
