package embedded

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/storage"
)

// twin keeps every change of a store.
type twin struct {
	changes []storage.Change
	rules   []storage.RetentionRule
	// since is when the present rules were set. They only promise to keep versions that were replaced later.
	since time.Time
}

// at returns the entries of a scope at a revision.
func (tw *twin) at(scope storage.Scope, revision int64) (list []string) {
	state := map[string]string{}
	for _, c := range tw.changes {
		if c.Entry.ModRevision > revision || !scope.Has(c.Entry.Key) {
			continue
		}
		if delete(state, c.Entry.Key); !c.Deleted {
			state[c.Entry.Key] = fmt.Sprintf("%s=%s@%d", c.Entry.Key, c.Entry.Value, c.Entry.ModRevision)
		}
	}
	for _, entry := range state {
		list = append(list, entry)
	}
	slices.Sort(list)
	return list
}

// scopes are the scopes that the test reads.
var scopes = []storage.Scope{
	{Prefix: "/"}, {Prefix: "/leases/"}, {Prefix: "/pods/"}, {Prefix: "/pods/", Namespace: "a"}, {Prefix: "/pods/", Namespace: "b"},
	{Prefix: "/nodes/"},
}

// span returns a request for all keys of a scope.
func span(s storage.Scope) storage.RangeRequest {
	prefix := s.Prefix
	if s.Namespace != "" {
		prefix += s.Namespace + "/"
	}
	return storage.RangeRequest{Start: prefix, End: storage.PrefixEnd(prefix)}
}

// TestRetentionTwin makes random changes, lets time pass, and restarts the store with other rules, sometimes after
// a power failure. It compares every state that can be read with the state in a twin, which keeps everything.
func TestRetentionTwin(t *testing.T) {
	for range effort.Rounds(30, 6) {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			clocks := newTwoClocks()
			disk := vfs.NewCrashableMem()
			o := Options{
				Dir: "d", FS: disk, Clock: clocks.wall.now, Monotonic: clocks.monotonic, SweepInterval: time.Hour,
				HistoryWindow: time.Minute, CompactInterval: time.Hour,
			}
			w := &twin{since: clocks.wall.now()}
			s := mustOpen(t, o)
			for range 40 {
				switch rng.IntN(8) {
				case 0:
					crashed := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(100), RNG: rng})
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					if rng.IntN(2) == 0 { // the power fails before the restart
						disk, o.FS = crashed, crashed
						mustVerify(t, o)
					}
					if rng.IntN(2) == 0 {
						o.Retention.Rules = randomRules(rng)
						w.rules, w.since = o.Retention.Rules, clocks.wall.now()
					}
					s = mustOpen(t, o)
				case 1, 2:
					clocks.pass(time.Duration(rng.IntN(600)) * time.Second)
					s.compactor.compactWindow(s.lifetime.stopped)
				default:
					for range rng.IntN(20) {
						clocks.pass(time.Duration(rng.IntN(5000)) * time.Millisecond)
						w.commit(t, s, rng, clocks.wall.now())
					}
				}
				w.compare(t, s, rng, clocks.wall.now())
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			mustVerify(t, o)
		})
	}
}

func randomRules(rng *rand.Rand) (rules []storage.RetentionRule) {
	times := []time.Duration{0, 30 * time.Second, 5 * time.Minute, 20 * time.Minute, time.Hour}
	for _, scope := range []storage.Scope{
		{Prefix: "/leases/"}, {Namespace: "a"}, {Prefix: "/pods/", Namespace: "b"}, {Prefix: "/pods/"}, {},
	} {
		if rng.IntN(3) > 0 {
			rules = append(rules, storage.RetentionRule{Scope: scope, Keep: times[rng.IntN(len(times))]})
		}
	}
	return rules
}

// commit makes a random change.
func (tw *twin) commit(t *testing.T, s *Store, rng *rand.Rand, now time.Time) {
	places := []string{"/leases/x/", "/pods/a/", "/pods/b/", "/nodes/"}
	txn := storage.Txn{By: fmt.Append(nil, "user", rng.IntN(5))}
	used := map[string]bool{}
	for range 1 + rng.IntN(2) {
		key := fmt.Sprint(places[rng.IntN(len(places))], rng.IntN(4))
		if used[key] {
			continue
		}
		used[key] = true
		op := storage.Put(key, fmt.Append(nil, rng.IntN(1e6)))
		if rng.IntN(4) == 0 {
			op = storage.Delete(key)
		}
		txn.Ops = append(txn.Ops, op)
	}
	before := s.hub.durable.Load()
	revision, err := s.Commit(t.Context(), txn)
	if err != nil {
		t.Fatal(err)
	}
	if revision == before {
		return // deletions of keys that do not exist
	}
	for _, op := range txn.Ops {
		existed := slices.ContainsFunc(tw.at(storage.Scope{Prefix: op.Key}, before), func(e string) bool {
			return strings.HasPrefix(e, op.Key+"=")
		})
		if op.Delete && !existed {
			continue
		}
		tw.changes = append(tw.changes, storage.Change{
			Event: storage.Event{Entry: storage.Entry{Key: op.Key, Value: op.Value, ModRevision: revision}, Deleted: op.Delete},
			Time:  now, By: txn.By,
		})
	}
}

func (tw *twin) compare(t *testing.T, s *Store, rng *rand.Rand, now time.Time) {
	t.Helper()
	current := s.hub.durable.Load()
	for _, scope := range scopes {
		floor := s.Floor(scope)
		for range 4 {
			revision := 1 + rng.Int64N(current)
			r := span(scope)
			r.Revision = revision
			result, err := s.RangeAt(t.Context(), scope, r)
			if revision < floor {
				if compacted := (*storage.CompactedError)(nil); !errors.As(err, &compacted) {
					t.Fatalf("%v at %d is below the floor %d: %v", scope, revision, floor, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%v at %d, floor %d: %v", scope, revision, floor, err)
			}
			var got []string
			for _, e := range result.Entries {
				got = append(got, fmt.Sprintf("%s=%s@%d", e.Key, e.Value, e.ModRevision))
			}
			if want := tw.at(scope, revision); !slices.Equal(got, want) {
				t.Fatalf("%v at %d, floor %d:\n%v\nwant\n%v", scope, revision, floor, got, want)
			}
		}
		if promised := tw.promised(scope, now); floor > promised {
			t.Fatalf("the floor of %v is %d, but %d is promised by %+v", scope, floor, promised, tw.rules)
		}
	}
	tw.compareVersions(t, s, now)
	compareBackwards(t, s, rng, now)
	tw.compareTimes(t, s, rng, now)
}

// promised returns the highest floor that the rules allow for a scope.
func (tw *twin) promised(scope storage.Scope, now time.Time) int64 {
	keep := time.Duration(1<<62 - 1)
	covered := false
	for _, r := range tw.rules {
		if r.Overlaps(scope) {
			keep = min(keep, r.Keep)
		}
		if r.Covers(scope) {
			covered = true
			break
		}
	}
	if !covered {
		keep = 0
	}
	from := now.Add(-max(keep, time.Minute))
	if from.Before(tw.since) {
		from = tw.since
	}
	promised := int64(1)
	for _, c := range tw.changes {
		if !c.Time.After(from) {
			promised = c.Entry.ModRevision
		}
	}
	return promised
}

// compareVersions compares the versions of each key with those in the twin. They must be the newest versions
// without a gap, and include all that the rules promise.
func (tw *twin) compareVersions(t *testing.T, s *Store, now time.Time) {
	t.Helper()
	byKey := map[string][]storage.Change{}
	for _, c := range tw.changes {
		byKey[c.Entry.Key] = append(byKey[c.Entry.Key], c)
	}
	retention := storage.Retention{Rules: tw.rules}
	for key, all := range byKey {
		slices.Reverse(all)
		got, _, err := s.Versions(t.Context(), storage.VersionsRequest{Key: key, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		from := now.Add(-max(retention.Keep(key), time.Minute))
		if from.Before(tw.since) {
			from = tw.since
		}
		for i, want := range all {
			if i == len(got) {
				replaced := i > 0 && !all[i-1].Time.After(from)
				if !replaced && (!want.Deleted || want.Time.After(from)) {
					t.Fatalf("%s: only %d of %d versions are kept", key, len(got), len(all))
				}
				break
			}
			g := got[i]
			if g.Entry.ModRevision != want.Entry.ModRevision || string(g.Entry.Value) != string(want.Entry.Value) ||
				g.Deleted != want.Deleted {
				t.Fatalf("%s: version %d is %+v, want %+v", key, i, g, want)
			}
			if want.Time.After(from) && (!g.Time.Equal(want.Time) || string(g.By) != string(want.By)) {
				t.Fatalf("%s: version %d was written at %v by %s, want %v by %s", key, i, g.Time, g.By, want.Time, want.By)
			}
		}
	}
}

// compareBackwards reads a random part of the changes in the order of revisions, and in random pages from the newest to the oldest.
func compareBackwards(t *testing.T, s *Store, rng *rand.Rand, now time.Time) {
	t.Helper()
	current := s.hub.durable.Load()
	r := storage.ChangesRequest{
		Prefix: []string{"/", "/pods/", "/pods/a/"}[rng.IntN(3)], After: rng.Int64N(current + 1), Through: 1 + rng.Int64N(current+1),
		KeysOnly: rng.IntN(2) == 0,
	}
	if rng.IntN(2) == 0 {
		r.Since = now.Add(-time.Duration(rng.IntN(3600)) * time.Second)
	}
	forwards, err := s.Changes(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(forwards.Changes)
	slices.SortStableFunc(want, func(a, b storage.Change) int { return int(b.Entry.ModRevision - a.Entry.ModRevision) })
	var got []storage.Change
	asked := r
	asked.Backwards, asked.Limit, asked.Examine = true, 1+rng.IntN(5), 1+rng.IntN(9)
	for more, pages := true, int64(0); more; pages++ {
		part, err := s.Changes(t.Context(), asked)
		if err != nil || pages > current {
			t.Fatalf("%+v: page %d: %v", asked, pages, err)
		}
		if part.After != forwards.After {
			t.Fatalf("%+v: the range begins after %d, forwards after %d", asked, part.After, forwards.After)
		}
		got = append(got, part.Changes...)
		asked.Through, more = part.Through-1, part.More
	}
	if !slices.EqualFunc(got, want, func(a, b storage.Change) bool { return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b) }) {
		t.Fatalf("%+v: %d changes backwards, %d forwards:\n%.1000v\n%.1000v", r, len(got), len(want), got, want)
	}
}

// compareTimes asks for the state of a scope at the times of some changes.
func (tw *twin) compareTimes(t *testing.T, s *Store, rng *rand.Rand, now time.Time) {
	t.Helper()
	for range 4 {
		if len(tw.changes) == 0 {
			return
		}
		c := tw.changes[rng.IntN(len(tw.changes))]
		at, by, err := s.WrittenAt(t.Context(), c.Entry.ModRevision)
		if err != nil {
			t.Fatal(err)
		}
		if at.IsZero() {
			continue
		}
		if !at.Equal(c.Time) || string(by) != string(c.By) {
			t.Fatalf("revision %d was written at %v by %s, want %v by %s", c.Entry.ModRevision, at, by, c.Time, c.By)
		}
	}
	for range 4 {
		t0 := now.Add(-time.Duration(rng.IntN(3600)) * time.Second)
		last := int64(1)
		for _, c := range tw.changes {
			if !c.Time.After(t0) {
				last = c.Entry.ModRevision
			}
		}
		for _, scope := range scopes {
			revision, err := s.RevisionAt(t.Context(), scope, t0)
			if compacted := (*storage.CompactedError)(nil); errors.As(err, &compacted) {
				if promised := tw.promised(scope, now); promised < last {
					t.Fatalf("%v at %v, revision %d, is not kept, but %d is promised by %+v", scope, t0, last, promised, tw.rules)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, want := tw.at(scope, revision), tw.at(scope, last); revision < s.Floor(scope) || !slices.Equal(got, want) {
				t.Fatalf("%v at %v is revision %d, and the last was %d:\n%v\nwant\n%v", scope, t0, revision, last, got, want)
			}
		}
	}
}

// mustVerify fails if the store has defects.
func mustVerify(t *testing.T, o Options) {
	t.Helper()
	r, err := OpenReader(testOptions(o))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = r.Verify(context.Background(), Checks{}, func(p Problem) { t.Error(p) })
	if err != nil {
		t.Fatal(err)
	}
}

// keepingStore opens a store that keeps everything for a day. The function that it returns writes n versions of a
// key and compacts history that is older than a minute.
func keepingStore(t *testing.T, o Options) (*Store, func(n int)) {
	clocks := newTwoClocks()
	o.Clock, o.Monotonic, o.HistoryWindow, o.CompactInterval = clocks.wall.now, clocks.monotonic, time.Minute, time.Hour
	o.Retention.Rules = []storage.RetentionRule{{Keep: 24 * time.Hour}}
	s := mustOpen(t, o)
	rng := rand.New(rand.NewPCG(1, 2))
	return s, func(n int) {
		value := make([]byte, 1000)
		for range n {
			for i := range value {
				value[i] = byte(rng.IntN(256))
			}
			mustCommit(t, s, storage.Put("/a", slices.Clone(value)))
			clocks.pass(time.Second)
		}
		s.compactor.compactWindow(s.lifetime.stopped)
		clocks.pass(2 * time.Minute)
		s.compactor.compactWindow(s.lifetime.stopped)
	}
}

// TestRetentionBytes checks that the oldest versions are given up when the kept history exceeds its limit, and
// that the remaining versions can be read.
func TestRetentionBytes(t *testing.T) {
	o := Options{Dir: "d", FS: vfs.NewMem(), Retention: storage.Retention{Bytes: 2 << 20}}
	s, write := keepingStore(t, o)
	write(1500)
	if kept := s.Kept().Bytes; kept < 1400<<10 || s.Floor(storage.Scope{}) > 1 {
		t.Fatalf("%d bytes are kept, from revision %d on", kept, s.Floor(storage.Scope{}))
	}
	write(3000)
	kept, floor := s.Kept().Bytes, s.Floor(storage.Scope{})
	// The limit applies to the space on the disk, and this data cannot be compressed. A step of a compaction gives
	// up 1024 revisions.
	if kept > 2<<20+200<<10 || kept < 800<<10 || floor < 2000 || floor > 4000 {
		t.Fatalf("%d bytes are kept, from revision %d on", kept, floor)
	}
	for _, revision := range []int64{floor, floor + 100} {
		if e, err := s.GetAt(t.Context(), storage.Scope{}, "/a", revision); err != nil || e.ModRevision != revision {
			t.Errorf("at revision %d: %d, %v", revision, e.ModRevision, err)
		}
	}
	if _, err := s.GetAt(t.Context(), storage.Scope{}, "/a", floor-1); err == nil {
		t.Error("what was given up can be read")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, s.opts)
}

// TestRetentionBytesCompressed checks that the limit applies to the space on the disk: more versions are kept if
// they compress well.
func TestRetentionBytesCompressed(t *testing.T) {
	clocks := newTwoClocks()
	s := mustOpen(t, Options{
		Dir: "d", FS: vfs.NewMem(), MemTableBytes: 64 << 10, Clock: clocks.wall.now, Monotonic: clocks.monotonic,
		HistoryWindow: time.Minute, CompactInterval: time.Hour,
		Retention: storage.Retention{Rules: []storage.RetentionRule{{Keep: 24 * time.Hour}}, Bytes: 1 << 20},
	})
	for range 5000 {
		mustCommit(t, s, storage.Put("/a", make([]byte, 1000)))
	}
	if err := s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
		t.Fatal(err)
	}
	s.compactor.compactWindow(s.lifetime.stopped)
	clocks.pass(2 * time.Minute)
	s.compactor.compactWindow(s.lifetime.stopped)
	if kept := s.Kept().Bytes; kept < 4<<20 || s.Floor(storage.Scope{}) > 1 {
		t.Errorf("%d bytes are kept, from revision %d on", kept, s.Floor(storage.Scope{}))
	}
}

// TestRetentionOfFullDisk checks that history is given up when the disk becomes full, before a write is refused.
func TestRetentionOfFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	space := func(available uint64) {
		disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: available, TotalBytes: 100 << 30})
	}
	space(10 << 30)
	s, write := keepingStore(t, Options{Dir: "d", FS: disk, ReserveBytes: 64 << 20})
	write(9000)
	before := s.Kept().Bytes
	space(100 << 20) // less than twice the reserve
	eventually(t, "history is given up", func() bool { return s.Kept().Bytes < before*4/5 })
	mustCommit(t, s, storage.Put("/b", nil))
	if s.Floor(storage.Scope{}) < 1000 {
		t.Errorf("the floor is %d", s.Floor(storage.Scope{}))
	}
}
