package embedded

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/storage"
)

func TestLevel(t *testing.T) {
	for _, c := range []struct {
		sizes map[string]int64
		room  int64
		want  int64
	}{
		{map[string]int64{"a": 20, "b": 30, "c": 200}, 90, 40},
		{map[string]int64{"a": 20, "b": 30, "c": 200}, 250, 200},
		{map[string]int64{"a": 50, "b": 50}, 10, 5},
		{map[string]int64{"a": 50}, 0, 0},
		{nil, 10, 0},
	} {
		if got := level(c.sizes, c.room); got != c.want {
			t.Errorf("level(%v, %d) = %d, want %d", c.sizes, c.room, got, c.want)
		}
	}
}

func TestShareOf(t *testing.T) {
	for key, want := range map[string]string{
		"/registry/pods/a/x": "a", "/registry/nodes/a": "/registry/nodes/", "/registry/pods/nodes/x": "nodes", "/pods/a/x": "a", "/nodes/a": "/nodes/",
		"/registry/services/specs/a/x": "a", "/registry/e.com/gadgets/a/x": "a", "/registry/e.com/gadgets/x": "/registry/e.com/gadgets/",
		"/registry/pods/gadgets/x": "gadgets", "/registry/apiregistration.k8s.io/apiservices/v1.": "/registry/apiregistration.k8s.io/apiservices/",
	} {
		if got := shareOf(key); got != want {
			t.Errorf("shareOf(%q) = %q, want %q", key, got, want)
		}
	}
	s := mustOpen(t, Options{Dir: "d", FS: vfs.NewMem(), HistoryWindow: -1})
	for range 3 {
		mustCommit(t, s, storage.Put("/registry/configmaps/nodes/big", make([]byte, 10_000)), storage.Put("/registry/nodes/n", make([]byte, 1000)))
	}
	v, err := s.compactor.sharesOf(t.Context(), 10_000, s.hub.durable.Load())
	if _, loses := v.excess["/registry/nodes/n"]; err != nil || loses || len(v.excess) != 1 {
		t.Errorf("a namespace that is named like a resource takes its room: %v, %v", v.excess, err)
	}
}

func TestLosses(t *testing.T) {
	var k kept
	k.lose("/pods/a/x", mark{Revision: 5})
	k.lose("/pods/a/x", mark{Revision: 7})
	k.lose("/nodes/n", mark{Revision: 3})
	f := &floors{rules: []keptRule{{}}, losses: k.Losses}
	for _, c := range []struct {
		scope storage.Scope
		key   string
		want  int64
	}{
		{storage.Scope{Prefix: "/pods/"}, "", 7}, {storage.Scope{Prefix: "/pods/", Namespace: "a"}, "", 7},
		{storage.Scope{Prefix: "/pods/", Namespace: "b"}, "", 0}, {storage.Scope{Prefix: "/nodes/"}, "", 3}, {storage.Scope{}, "", 7},
		{storage.Scope{Prefix: "/pods/", Namespace: "a"}, "/pods/a/x", 7}, {storage.Scope{Prefix: "/pods/", Namespace: "a"}, "/pods/a/y", 0},
	} {
		got := f.of(c.scope).Revision
		if c.key != "" {
			got = f.ofKey(c.scope, c.key).Revision
		}
		if got != c.want {
			t.Errorf("%v %s: %d, want %d", c.scope, c.key, got, c.want)
		}
	}
	for i := range 2 * maxLosses {
		k.lose(fmt.Sprintf("/pods/a/%d", i), mark{Revision: int64(100 + i)})
	}
	f.losses = k.Losses
	if n := len(k.Losses); n > maxLosses || f.of(storage.Scope{Prefix: "/pods/", Namespace: "b"}).Revision != 0 ||
		f.ofKey(storage.Scope{}, "/pods/a/1").Revision < 101 {
		t.Errorf("%d losses: %v", n, k.Losses[:min(n, 5)])
	}
	for i := range 2 * maxLosses {
		k.lose(fmt.Sprintf("/pods/%d/x", i), mark{Revision: int64(10000 + i)})
	}
	f.losses = k.Losses
	if n := len(k.Losses); n > maxLosses || f.ofKey(storage.Scope{}, "/pods/0/x").Revision < 10000 {
		t.Errorf("%d losses", n)
	}
}

// TestWhoWritesMostLosesFirst writes very often to one object. Changes and deletions by others are still kept,
// with their authors, and so is the history of the other objects in the same namespace.
func TestWhoWritesMostLosesFirst(t *testing.T) {
	clocks := newTwoClocks()
	o := Options{
		Dir: "d", FS: vfs.NewMem(), Clock: clocks.wall.now, Monotonic: clocks.monotonic, HistoryWindow: time.Minute, CompactInterval: time.Hour,
		Retention: storage.Retention{Rules: []storage.RetentionRule{{Keep: 24 * time.Hour}}, Bytes: 1 << 20},
	}
	s := mustOpen(t, o)
	rng := rand.New(rand.NewPCG(1, 2))
	put := func(key string, size int) {
		t.Helper()
		value := make([]byte, size)
		for i := range value {
			value[i] = byte(rng.IntN(256)) // random bytes cannot be compressed
		}
		mustCommit(t, s, storage.Put(key, value))
		clocks.pass(10 * time.Millisecond)
	}
	put("/secrets/shop/key", 1000)
	put("/configmaps/shop/c", 1000)
	put("/configmaps/attacker/other", 1000)
	put("/configmaps/attacker/deleted", 1000)
	before, then := s.hub.durable.Load(), clocks.wall.now()
	clocks.pass(10 * time.Millisecond)
	for _, key := range []string{"/secrets/shop/key", "/configmaps/attacker/deleted"} {
		if _, err := s.Commit(t.Context(), storage.Txn{By: []byte("mallory"), Ops: []storage.Op{storage.Delete(key)}}); err != nil {
			t.Fatal(err)
		}
	}
	put("/configmaps/shop/c", 1000)
	put("/configmaps/attacker/other", 1000)
	for range 8 {
		for range 500 {
			put("/configmaps/attacker/big", 2000)
		}
		clocks.pass(2 * time.Minute)
		s.compactor.compactWindow(s.lifetime.stopped)
		clocks.pass(2 * time.Minute)
		s.compactor.compactWindow(s.lifetime.stopped)
	}
	if n := s.Kept().Bytes; n > 1<<20+300<<10 || n < 500<<10 {
		t.Errorf("%d bytes are kept", n)
	}
	scope := func(key string) storage.Scope { return storage.Scope{Prefix: "/" + key + "/", Namespace: "shop"} }
	for _, r := range []struct{ prefix, key string }{{"secrets", "/secrets/shop/key"}, {"configmaps", "/configmaps/shop/c"}} {
		if e, err := s.GetAt(t.Context(), scope(r.prefix), r.key, before); err != nil || len(e.Value) != 1000 {
			t.Errorf("%s: %d bytes, %v", r.key, len(e.Value), err)
		}
	}
	for _, key := range []string{"/secrets/shop/key", "/configmaps/attacker/deleted"} {
		list, _, err := s.Versions(t.Context(), storage.VersionsRequest{Key: key, Limit: 10})
		if err != nil || len(list) != 2 || !list[0].Deleted || string(list[0].By) != "mallory" || len(list[1].Entry.Value) != 1000 {
			t.Errorf("%s: %+v, %v", key, list, err)
		}
	}
	attacker := storage.Scope{Prefix: "/configmaps/", Namespace: "attacker"}
	if e, err := s.GetAt(t.Context(), attacker, "/configmaps/attacker/other", before); err != nil || len(e.Value) != 1000 {
		t.Errorf("another object of the same namespace: %d bytes, %v", len(e.Value), err)
	}
	// For each object, a time can be resolved to a revision that can still be read, even if a neighbouring object
	// has lost history.
	at := func(key string) (int64, error) {
		return s.RevisionAt(t.Context(), storage.Scope{Prefix: key, Namespace: "attacker"}, then)
	}
	if revision, err := at("/configmaps/attacker/other"); err != nil || revision != before {
		t.Errorf("the revision of another object of the same namespace: %d, %v, want %d", revision, err, before)
	}
	var compacted *storage.CompactedError
	if revision, err := at("/configmaps/attacker/big"); !errors.As(err, &compacted) {
		t.Errorf("the revision of an object that has lost something: %d, %v", revision, err)
	}
	if _, err := s.RangeAt(t.Context(), attacker, storage.RangeRequest{
		Start: "/configmaps/attacker/", End: "/configmaps/attacker0", Revision: before + 5,
	}); !errors.As(err, &compacted) {
		t.Errorf("a list of what was given up: %v", err)
	}
	if given := s.Kept().GivenUp; len(given) != 1 || given["attacker"] < 4<<20 {
		t.Errorf("given up: %v", given)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, s.opts)
}

// TestSharesTwin makes random changes, gives up random parts of the history, and restarts the store, sometimes
// after a power failure. It compares every state that can be read with the state in a twin, which keeps
// everything.
func TestSharesTwin(t *testing.T) {
	for range effort.Rounds(20, 5) {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			clocks := newTwoClocks()
			disk := vfs.NewCrashableMem()
			o := Options{
				Dir: "d", FS: disk, Clock: clocks.wall.now, Monotonic: clocks.monotonic, SweepInterval: time.Hour,
				HistoryWindow: time.Minute, CompactInterval: time.Hour,
				Retention: storage.Retention{Rules: []storage.RetentionRule{{Scope: storage.Scope{Namespace: "a"}, Keep: time.Hour}, {Keep: 24 * time.Hour}}},
			}
			w := &twin{since: clocks.wall.now(), rules: o.Retention.Rules}
			s := mustOpen(t, o)
			for range 30 {
				switch rng.IntN(6) {
				case 0:
					crashed := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(100), RNG: rng})
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					if rng.IntN(2) == 0 {
						disk, o.FS = crashed, crashed
					}
					mustVerify(t, o)
					s = mustOpen(t, o)
				case 1:
					clocks.pass(time.Duration(rng.IntN(600)) * time.Second)
					s.compactor.compactWindow(s.lifetime.stopped)
				case 2:
					s.compactor.mu.Lock()
					err := s.compactor.giveUp(t.Context(), s.compactor.kept.Bytes*int64(rng.IntN(10))/10)
					s.compactor.mu.Unlock()
					if err != nil {
						t.Fatal(err)
					}
				default:
					for range rng.IntN(20) {
						clocks.pass(time.Duration(rng.IntN(5000)) * time.Millisecond)
						w.commit(t, s, rng, clocks.wall.now())
					}
				}
				w.compareStates(t, s)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			mustVerify(t, o)
		})
	}
}

// compareStates compares everything that can be read with the twin.
func (tw *twin) compareStates(t *testing.T, s *Store) {
	t.Helper()
	for revision := int64(1); revision <= s.hub.durable.Load(); revision++ {
		for _, scope := range scopes {
			r := span(scope)
			r.Revision = revision
			result, err := s.RangeAt(t.Context(), scope, r)
			if err != nil {
				if revision >= s.Floor(scope) {
					t.Fatalf("%v at revision %d, floor %d: %v", scope, revision, s.Floor(scope), err)
				}
			} else {
				var got []string
				for _, e := range result.Entries {
					got = append(got, fmt.Sprintf("%s=%s@%d", e.Key, e.Value, e.ModRevision))
				}
				if want := tw.at(scope, revision); !slices.Equal(got, want) {
					t.Fatalf("%v at revision %d:\n%v\nwant\n%v", scope, revision, got, want)
				}
			}
		}
		for _, key := range []string{"/pods/a/0", "/pods/b/1", "/nodes/2", "/leases/x/3"} {
			scope := storage.Scope{Prefix: key[:6]}
			e, err := s.GetAt(t.Context(), scope, key, revision)
			if err != nil {
				continue
			}
			got := fmt.Sprintf("[%s=%s@%d]", e.Key, e.Value, e.ModRevision)
			if e.ModRevision == 0 {
				got = "[]"
			}
			if want := fmt.Sprint(tw.at(storage.Scope{Prefix: key}, revision)); got != want {
				t.Fatalf("%s at revision %d: %s, want %s", key, revision, got, want)
			}
		}
	}
}
