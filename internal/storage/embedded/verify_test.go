package embedded

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/storage"
)

func verifyAll(t *testing.T, o Options) (Verified, []string) {
	t.Helper()
	r, err := OpenReader(testOptions(o))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var problems []string
	check := Checks{
		Value: func(r Record) (wrong []string) {
			if string(r.Value) == "bad" {
				wrong = append(wrong, "a bad value")
			}
			return wrong
		},
		Author: func(by []byte) error {
			if string(by) == "bad" {
				return errors.New("a bad author")
			}
			return nil
		},
	}
	seen, err := r.Verify(t.Context(), check, func(p Problem) {
		problems = append(problems, p.String())
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen, problems
}

func checkVerify(t *testing.T, o Options) Verified {
	t.Helper()
	seen, problems := verifyAll(t, o)
	for _, p := range problems {
		t.Error(p)
	}
	return seen
}

// TestVerifyFindsNothing checks that Verify reports no problem in stores after random writes, expiry and compactions
// that were closed or killed.
func TestVerifyFindsNothing(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	mem := vfs.NewCrashableMem()
	clock := &fakeClock{}
	clock.ms.Store(1e12)
	o := Options{Dir: "d", FS: mem, Clock: clock.now, HistoryWindow: -1, MemTableBytes: 64 << 10}
	for round := range 6 {
		o.MinRevision = int64(rng.IntN(2)) * int64(round) * 10_000
		s := mustOpen(t, o)
		for range effort.Rounds(3000, 500) {
			var ops []storage.Op
			for i := range 1 + rng.IntN(3) {
				key := fmt.Sprintf("/%d/%d", i, rng.IntN(100))
				if rng.IntN(4) == 0 {
					ops = append(ops, storage.Delete(key))
				} else {
					ops = append(
						ops, storage.Op{Key: key, Value: make([]byte, rng.IntN(500)), TTL: int64(rng.IntN(3)) * int64(rng.IntN(1000))},
					)
				}
			}
			r := mustCommit(t, s, ops...)
			clock.advance(time.Duration(rng.IntN(1000)) * time.Millisecond)
			if rng.IntN(500) == 0 {
				if err := s.Compact(t.Context(), r-int64(rng.IntN(int(min(r, 1000))))); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.sweeper.sweep(s.lifetime.stopped)
		if rng.IntN(2) == 0 {
			o.FS = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(100), RNG: rng})
			s.Close()
			mem = o.FS.(*vfs.MemFS)
		} else if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if seen := checkVerify(t, o); seen.Versions == 0 || seen.LogRecords == 0 {
			t.Errorf("round %d looked at nothing: %+v", round, seen)
		}
	}
}

// TestVerifyFinds creates one defect at a time and checks that Verify reports it.
func TestVerifyFinds(t *testing.T) {
	set := func(key, value []byte) func(*pebble.DB) error {
		return func(db *pebble.DB) error { return db.Set(key, value, pebble.Sync) }
	}
	remove := func(key []byte) func(*pebble.DB) error {
		return func(db *pebble.DB) error { return db.Delete(key, pebble.Sync) }
	}
	encoded := func(v version) []byte {
		b := make([]byte, v.size())
		v.encode(b)
		return b
	}
	at := func(key string, revision int64) []byte { return appendVersionKey(nil, key, revision) }
	// The store: /a is put at 2, 3 and 6; /b is put at 4 with a deadline; /c is put at 5 and deleted at 7; /d is put at 8.
	// It is compacted to 3.
	deadline := func(s *Store) int64 {
		e, err := s.Export(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		return collectRecords(t, e.Records(t.Context()))[1].Deadline
	}
	due := int64(0)
	for _, c := range []struct {
		name  string
		plant func(*pebble.DB) error
		want  string
	}{
		{"version lost", remove(at("/d", 8)), "key /d: the log has a change at revision 8, but there is no such version"},
		{
			"old version lost", remove(at("/a", 3)),
			"key /a: in the log revision 3 is before revision 6, among the versions it is 0",
		},
		{"log record lost", remove(logKey(6)), "key /a: there is a version of revision 6, but no log record of it"},
		{"gap in the log", remove(logKey(6)), "revision 6: it is missing in the log, which continues at revision 7"},
		{
			"version too much", set(at("/x", 5), encoded(version{create: 5})),
			"key /x: there is a version of revision 5, but no log record of it",
		},
		{
			"version left by compaction", set(at("/a", 2), encoded(version{create: 2})),
			"key /a: revision 2 was replaced and should have been compacted",
		},
		{
			"deletion left by compaction", set(at("/x", 2), encoded(version{tombstone: true})),
			"key /x: the deletion at revision 2 should have been compacted",
		},
		{
			"version from the future", set(at("/x", 99), encoded(version{create: 99})),
			"key /x: revision 99 is above the revision of the store, 8",
		},
		{
			"made later", set(at("/d", 8), encoded(version{create: 9})),
			"key /d: revision 8 has the wrong create revision 9",
		},
		{
			"deleted for the index only", set(at("/d", 8), encoded(version{tombstone: true})),
			"key /d: the log and the version disagree whether revision 8 is a deletion",
		},
		{
			"unreadable version", set(at("/d", 8), []byte{0xff}), "key /d: revision 8: embedded: corrupt record: version header",
		},
		{"unreadable log record", set(logKey(8), []byte{0, 0x80}), "revision 8: embedded: corrupt record: number"},
		{
			"deadline not in the index",
			func(db *pebble.DB) error { return db.Delete(appendExpiryKey(nil, due, "/b"), pebble.Sync) },
			"key /b: it has a time to live, but is not in the expiry index: it would never be removed",
		},
		{
			"deadline of nothing", set(appendExpiryKey(nil, 1e12, "/d"), encodeNumber(8)),
			"key /d: the expiry index has a deadline for its revision 8, which is not its newest one or has another deadline",
		},
		{"unreadable author", set(logKey(8), appendLogOp(appendWritten(nil, written{1, []byte("bad")}), logOp{key: "/d"})),
			"revision 8: a bad author"},
		{"unreadable value", set(at("/d", 8), encoded(version{create: 8, value: []byte("bad")})), "key /d: a bad value"},
		{"unreadable value of the past", set(at("/a", 3), encoded(version{create: 2, value: []byte("bad")})), "key /a: a bad value"},
		{"wrong size of the past", set([]byte(metaKept), (&kept{Bytes: 5}).encode()),
			`record "mkept": it says that 5 bytes are kept, and the log has 0`},
		{"unknown space", set([]byte("z"), nil), `record "z": its prefix is unknown`},
		{"unknown number", set([]byte("mother"), nil), `record "mother": its prefix is unknown`},
	} {
		fs := vfs.NewMem()
		o := Options{Dir: "d", FS: fs, HistoryWindow: -1, SweepInterval: time.Hour}
		s := mustOpen(t, o)
		for _, ops := range [][]storage.Op{
			{storage.Put("/a", []byte("1"))}, {storage.Put("/a", []byte("2"))}, {{Key: "/b", TTL: 1000}},
			{storage.Put("/c", nil)},
			{storage.Put("/a", []byte("3"))}, {storage.Delete("/c")}, {storage.Put("/d", nil)},
		} {
			mustCommit(t, s, ops...)
		}
		if err := s.Compact(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		due = deadline(s)
		if err := c.plant(s.db.DB); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		_, problems := verifyAll(t, o)
		found := false
		for _, p := range problems {
			found = found || p == c.want
		}
		if !found {
			t.Errorf("%s: found %q, want %q", c.name, problems, c.want)
		}
	}
}

// TestVerifyFindsChangedByte checks that Verify reports a changed byte in a table.
func TestVerifyFindsChangedByte(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: dir, HistoryWindow: -1}
	s := mustOpen(t, o)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 300 {
		value := make([]byte, 1000)
		for j := range value {
			value[j] = byte(rng.Uint32())
		}
		mustCommit(t, s, storage.Put(fmt.Sprintf("/%03d", i), value))
	}
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if seen := checkVerify(t, o); seen.Files == 0 || seen.Keys != 300 {
		t.Fatalf("%+v", seen)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	content, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		at := rng.IntN(len(content))
		content[at] ^= 0x10
		if err := os.WriteFile(tables[0], content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, problems := verifyAll(t, o)
		if name := "file " + filepath.Base(tables[0]) + ": "; len(problems) == 0 || !strings.HasPrefix(problems[0], name) {
			t.Errorf("byte %d of %d was changed, and verifying says %q", at, len(content), problems)
		}
		content[at] ^= 0x10
	}
}
