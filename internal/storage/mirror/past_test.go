package mirror

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
	"github.com/keelson-dev/keelson/internal/storage/memoryetcd/etcdtest"
)

// startMirror starts a mirror in a directory until the test ends.
func startMirror(t *testing.T, source *etcd.Store, dir string) *Store {
	t.Helper()
	m := open(source, dir, nil)
	t.Cleanup(func() { _ = m.Close() })
	return NewStore(m)
}

// all returns all changes of a mirror, with the times in milliseconds.
func all(t *testing.T, s *Store) []storage.Change {
	t.Helper()
	r, err := s.Changes(t.Context(), storage.ChangesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Changes
}

// TestEveryMirrorHasTheSamePast lets several servers write, and checks that the mirror of each has all changes with their authors, times
// and deadlines, also those that were made while it was away, and reads each state as it was.
func TestEveryMirrorHasTheSamePast(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	url := etcdtest.Serve(t)
	sources := []*etcd.Store{connect(t, url), connect(t, url), connect(t, url)}
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	mirrors := make([]*Store, len(sources))
	for i := range sources {
		mirrors[i] = startMirror(t, sources[i], dirs[i])
		if _, err := mirrors[i].Mirror.current(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var want []storage.Change
	for range effort.Rounds(20, 4) {
		away := rng.IntN(len(mirrors))
		if err := mirrors[away].Mirror.Close(); err != nil {
			t.Fatal(err)
		}
		for range 1 + rng.IntN(40) {
			want = append(want, commit(t, rng, sources[rng.IntN(len(sources))])...)
		}
		mirrors[away] = startMirror(t, sources[away], dirs[away])
		compareChanges(t, all(t, mirrors[away]), want)
	}
	first := all(t, mirrors[0])
	for _, m := range mirrors[1:] {
		if got := all(t, m); !reflect.DeepEqual(got, first) {
			t.Errorf("two mirrors have different changes:\n%v\n%v", got, first)
		}
	}
	state := map[string]storage.Change{}
	everything := storage.Scope{Prefix: root}
	for i, c := range want {
		if state[c.Entry.Key] = c; i+1 < len(want) && want[i+1].Entry.ModRevision == c.Entry.ModRevision {
			continue
		}
		m := mirrors[rng.IntN(len(mirrors))]
		r, err := m.RangeAt(t.Context(), everything, storage.RangeRequest{
			Start: root, End: storage.PrefixEnd(root), Revision: c.Entry.ModRevision,
		})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, c := range state {
			if !c.Deleted {
				n++
			}
		}
		for _, e := range r.Entries {
			if string(state[e.Key].Entry.Value) != string(e.Value) || state[e.Key].Deleted {
				t.Fatalf("revision %d has %s=%q, not %+v", c.Entry.ModRevision, e.Key, e.Value, state[e.Key])
			}
		}
		if len(r.Entries) != n {
			t.Fatalf("revision %d has %d keys, not %d", c.Entry.ModRevision, len(r.Entries), n)
		}
		if at, by, err := m.WrittenAt(t.Context(), c.Entry.ModRevision); err != nil || string(by) != string(c.By) || at.IsZero() {
			t.Fatalf("revision %d was written %v by %q, %v", c.Entry.ModRevision, at, by, err)
		}
	}
}

// commit makes a random change and returns what a mirror has of it, without the time.
func commit(t *testing.T, rng *rand.Rand, s *etcd.Store) (list []storage.Change) {
	t.Helper()
	txn := storage.Txn{By: fmt.Appendf(nil, "user %d", rng.IntN(5))}
	for _, k := range rng.Perm(10)[:1+rng.IntN(3)] {
		c := storage.Change{Event: storage.Event{Entry: storage.Entry{Key: fmt.Sprintf("%sthings/%d", root, k)}}, By: txn.By}
		op := storage.Op{Key: c.Entry.Key, Value: fmt.Append(nil, rng.Int())}
		e, _, err := s.Get(t.Context(), op.Key, 0)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case e.ModRevision != 0 && rng.IntN(3) == 0:
			op.Delete, op.Value, c.Deleted = true, nil, true
			txn.Conditions = append(txn.Conditions, storage.Condition{Key: op.Key, ModRevision: e.ModRevision})
		case rng.IntN(4) == 0:
			op.TTL = 3600
			c.Deadline = time.Now().Add(time.Hour).UnixMilli()
		}
		c.Entry.Value = op.Value
		txn.Ops, list = append(txn.Ops, op), append(list, c)
	}
	revision, err := s.Commit(t.Context(), txn)
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		list[i].Entry.ModRevision = revision
	}
	return list
}

func compareChanges(t *testing.T, got, want []storage.Change) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("the mirror has %d changes, not %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		late := time.Duration(g.Deadline-w.Deadline) * time.Millisecond
		if g.Entry.Key != w.Entry.Key || g.Entry.ModRevision != w.Entry.ModRevision || string(g.Entry.Value) != string(w.Entry.Value) ||
			g.Deleted != w.Deleted || string(g.By) != string(w.By) || g.Time.IsZero() || late.Abs() > time.Minute {
			t.Fatalf("change %d is %+v, not %+v", i, g, w)
		}
	}
}

// TestChangesOfOthers checks that what another program writes to the cluster is in the past too, without an author.
func TestChangesOfOthers(t *testing.T) {
	url := etcdtest.Serve(t)
	s := startMirror(t, connect(t, url), t.TempDir())
	if _, err := s.Mirror.current(t.Context()); err != nil {
		t.Fatal(err)
	}
	other, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{url}, CompactionInterval: -1, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	before := time.Now()
	key := root + "things/a"
	put := storage.Txn{By: []byte("not recorded"), Ops: []storage.Op{storage.Put(key, []byte("1"))}}
	if _, err := other.Commit(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), storage.Txn{By: []byte("me"), Ops: []storage.Op{storage.Delete(key)}}); err != nil {
		t.Fatal(err)
	}
	list := all(t, s)
	if len(list) != 2 || len(list[0].By) > 0 || list[0].Time.Before(before.Truncate(time.Millisecond)) ||
		!list[1].Deleted || len(list[1].By) > 0 {
		t.Errorf("the changes are %+v", list)
	}
	if at, err := s.RevisionAt(t.Context(), storage.Scope{Prefix: root}, list[1].Time); err != nil || at != list[1].Entry.ModRevision {
		t.Errorf("the state at the last change has revision %d, %v", at, err)
	}
}

// TestHole checks that a mirror that was away for longer than the cluster keeps changes begins anew, and says that the time before is not
// kept.
func TestHole(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	source, dir := connect(t, etcdtest.Serve(t)), t.TempDir()
	s := startMirror(t, source, dir)
	old := write(t, rng, source, 20)
	if len(all(t, s)) == 0 {
		t.Error("the mirror has no changes")
	}
	if err := s.Mirror.Close(); err != nil {
		t.Fatal(err)
	}
	compacted := write(t, rng, source, 20)
	if err := source.Compact(t.Context(), compacted); err != nil {
		t.Fatal(err)
	}
	write(t, rng, source, 20)
	s = startMirror(t, source, dir)
	if _, err := s.Mirror.current(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := s.GetAt(t.Context(), storage.Scope{}, root+"things/1", old)
	if gone := (*storage.CompactedError)(nil); !errors.As(err, &gone) {
		t.Errorf("a revision before the hole: %v", err)
	}
	if floor := s.Floor(storage.Scope{}); floor < compacted {
		t.Errorf("the floor is %d", floor)
	}
}

// TestDamagedMirror checks that a mirror whose files are damaged, or of which a part was made, is made anew.
func TestDamagedMirror(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"cut off": func(dir string) error {
			list, err := filepath.Glob(filepath.Join(dir, "store", "MANIFEST-*"))
			for _, path := range list {
				err = errors.Join(err, os.Truncate(path, 10))
			}
			return err
		},
		"lost": func(dir string) error { return os.RemoveAll(filepath.Join(dir, "store")) },
		"killed while it was made": func(dir string) error {
			return os.Rename(filepath.Join(dir, "store"), filepath.Join(dir, "store.making"))
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			source, dir := connect(t, etcdtest.Serve(t)), t.TempDir()
			s := startMirror(t, source, dir)
			write(t, rng, source, 20)
			all(t, s)
			if err := errors.Join(s.Mirror.Close(), damage(dir)); err != nil {
				t.Fatal(err)
			}
			s = startMirror(t, source, dir)
			revision := write(t, rng, source, 1)
			r, err := s.RangeAt(t.Context(), storage.Scope{}, storage.RangeRequest{
				Start: root, End: storage.PrefixEnd(root), Revision: revision,
			})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for e := range slices.Values(r.Entries) {
				got[e.Key] = string(e.Value)
			}
			if want := keys(t, source); !reflect.DeepEqual(got, want) {
				t.Errorf("the mirror has %v, not %v", got, want)
			}
		})
	}
}

// TestFailureIsNoReasonToBeginAnew checks that a mirror stays as it is while its disk or the bucket fails, and is used afterwards.
func TestFailureIsNoReasonToBeginAnew(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	source, dir := connect(t, etcdtest.Serve(t)), t.TempDir()
	s := startMirror(t, source, dir)
	if err := s.Mirror.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := write(t, rng, source, 20)
	if len(all(t, s)) == 0 {
		t.Fatal("the mirror has no changes")
	}
	if err := s.Mirror.Close(); err != nil {
		t.Fatal(err)
	}
	used, err := embedded.OpenFollower(embedded.Options{Dir: filepath.Join(dir, "store"), ReserveBytes: -1, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	s = startMirror(t, source, dir)
	wait.Until(t, "the mirror fails, because its directory is in use", func() bool { return s.Mirror.Failing() != nil })
	if err := used.Close(); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the mirror is used again", func() bool { return s.Mirror.Await(t.Context()) == nil })
	if _, err := s.GetAt(t.Context(), storage.Scope{}, root+"things/1", old); err != nil {
		t.Errorf("the past is gone: %v", err)
	}
	if err := errors.Join(s.Mirror.Close(), os.RemoveAll(filepath.Join(dir, "store"))); err != nil {
		t.Fatal(err)
	}
	m := open(source, dir, unreachable{})
	defer m.Close()
	wait.Until(t, "the mirror fails, because the bucket cannot be reached", func() bool { return m.Failing() != nil })
	if _, err := os.Stat(filepath.Join(dir, "store")); err == nil {
		t.Error("a mirror was made without its past, because the bucket could not be reached")
	}
}

// TestDamagedCopy checks that a mirror is made without its past if that is neither on the disk nor, whole, in the copy.
func TestDamagedCopy(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"cut":            func(path string) error { return os.Truncate(path, 40) },
		"without images": func(path string) error { return removeIf(path, !strings.HasSuffix(path, ".changes")) },
		"without changes before the last": func(path string) error {
			others, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.changes"))
			return errors.Join(err, removeIf(path, strings.HasSuffix(path, ".changes") && path != slices.Max(others)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			source, to := connect(t, etcdtest.Serve(t)), t.TempDir()
			s := startServer(t, "a", source, to)
			for range 3 {
				s.await(t, write(t, rng, source, 20))
			}
			s.end(t)
			err := filepath.WalkDir(to, func(path string, d os.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				return damage(path)
			})
			if err != nil {
				t.Fatal(err)
			}
			m := open(source, t.TempDir(), place(t, to))
			defer m.Close()
			wait.NoError(t, "the mirror is made", func() error { return m.Await(t.Context()) })
		})
	}
}

// removeIf removes a file if a condition is true.
func removeIf(path string, condition bool) error {
	if !condition {
		return nil
	}
	return os.Remove(path)
}

// unreachable is a bucket that cannot be reached.
type unreachable struct{ bucket.Bucket }

func (unreachable) List(context.Context) ([]bucket.Object, error) { return nil, errCut }

// TestReadersDoNotWaitForEver checks that a read fails while there is no mirror, and that writes are not affected.
func TestReadersDoNotWaitForEver(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	source, dir := connect(t, etcdtest.Serve(t)), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := startMirror(t, source, filepath.Join(dir, "file")) // it cannot be made
	revision := write(t, rng, source, 5)
	wait.Until(t, "the mirror fails", func() bool { return s.Mirror.Failing() != nil })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := s.GetAt(ctx, storage.Scope{}, root+"things/1", revision)
	if none := (*storage.NoPastError)(nil); !errors.As(err, &none) || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a read without a mirror: %v", err)
	}
	if err := s.Mirror.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.GetAt(t.Context(), storage.Scope{}, root+"things/1", revision); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("a read of a closed store: %v", err)
	}
}
