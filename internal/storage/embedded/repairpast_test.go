package embedded

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/storage"
)

// pastStore is a store with a compacted past, and the values that were written to it.
type pastStore struct {
	dir     string
	options Options
	live    map[string]string   // the values of the keys that exist
	before  map[string][]string // earlier values, by key
}

// newPastStore writes random objects into several levels of tables, and compacts most of their past. Tables of
// upper levels contain deletions of records in lower levels.
func newPastStore(t *testing.T, rng *rand.Rand) *pastStore {
	t.Helper()
	clocks := newTwoClocks()
	p := &pastStore{dir: t.TempDir(), live: map[string]string{}, before: map[string][]string{}}
	p.options = Options{
		Dir: p.dir, Clock: clocks.wall.now, Monotonic: clocks.monotonic, HistoryWindow: time.Minute, CompactInterval: time.Hour,
		SweepInterval: time.Hour,
	}
	if rng.IntN(2) == 0 {
		p.options.Retention.Rules = []storage.RetentionRule{{Scope: storage.Scope{Prefix: "/pods/"}, Keep: time.Hour}}
	}
	s := mustOpen(t, p.options)
	change := func() {
		key := fmt.Sprintf("/%s/%d/%02d", []string{"pods", "leases"}[rng.IntN(2)], rng.IntN(2), rng.IntN(20))
		if old, ok := p.live[key]; ok {
			p.before[key] = append(p.before[key], old)
		}
		if _, ok := p.live[key]; ok && rng.IntN(3) == 0 {
			mustCommit(t, s, storage.Delete(key))
			delete(p.live, key)
			return
		}
		value := make([]byte, 10+rng.IntN(2000))
		for i := range value {
			value[i] = byte('0' + rng.IntN(64))
		}
		mustCommit(t, s, storage.Put(key, value))
		p.live[key] = string(value)
	}
	for range 6 {
		for range 20 + rng.IntN(100) {
			change()
			clocks.pass(100 * time.Millisecond)
		}
		if rng.IntN(3) > 0 {
			clocks.pass(2 * time.Minute)
			s.compactor.compactWindow(s.lifetime.stopped)
			clocks.pass(2 * time.Minute)
			s.compactor.compactWindow(s.lifetime.stopped)
		}
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
		if rng.IntN(4) == 0 {
			if err := s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, p.options)
	return p
}

// damageRandomly damages a random table, newer tables with a higher probability. what describes the damage.
// records is false if no record was damaged.
func (p *pastStore) damageRandomly(t *testing.T, rng *rand.Rand) (what string, records bool) {
	t.Helper()
	tables, err := filepath.Glob(filepath.Join(p.dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	slices.Sort(tables)
	name := tables[max(rng.IntN(len(tables)), rng.IntN(len(tables)))]
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	what, records = "the table was removed", true
	switch n := rng.IntN(8); n {
	case 0:
		content = nil
	case 1:
		what, records = "the properties were damaged", false
		if layout := layoutOf(t, content); layout.RangeDel.Length > 0 {
			invert(content, int(layout.RangeDel.Offset), 1)
			what = "the range deletions were damaged"
		} else {
			invert(content, int(layout.Properties.Offset), 1)
		}
	case 2:
		what = "its index was damaged"
		invert(content, int(layoutOf(t, content).Index[0].Offset), 1)
	default:
		what = ""
		for range 1 + n/6 {
			at := rng.IntN(len(content))
			invert(content, at, 1)
			what += fmt.Sprintf("byte %d of %d was damaged; ", at, len(content))
		}
	}
	if content == nil {
		err = os.Remove(name)
	} else {
		err = os.WriteFile(name, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Base(name) + ": " + what, records
}

// TestRepairOfCompactedPast damages a table of a store whose past was compacted. After a repair, every key has its
// value or is named as lost, and no deleted object exists again. Verify and a second repair find no defect.
func TestRepairOfCompactedPast(t *testing.T) {
	for range effort.Rounds(60, 10) {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			p := newPastStore(t, rng)
			what, records := p.damageRandomly(t, rng)
			t.Log(what)
			done, err := Repair(t.Context(), testOptions(p.options), RepairOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if !records && (len(done.Lost) > 0 || done.LogLost != 0) { // older versions are in blocks that the properties say where to find
				t.Errorf("no record was damaged, and the repair says that one is lost: %+v", done)
			}
			if done.Past > 0 && strings.HasSuffix(what, "range deletions were damaged") {
				t.Errorf("only deletions were damaged, and the repair says that %d older versions are lost", done.Past)
			}
			p.check(t, &done)
			again, err := Repair(t.Context(), testOptions(p.options), RepairOptions{})
			if err != nil || len(again.Tables)+len(again.Lost)+again.Past > 0 || again.LogLost != 0 {
				t.Errorf("a second repair: %+v, %v", again, err)
			}
			s := mustOpen(t, p.options)
			if err := s.Compact(t.Context(), s.hub.durable.Load()); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			mustVerify(t, p.options)
		})
	}
}

// check compares the repaired store with the written values.
func (p *pastStore) check(t *testing.T, done *Repaired) {
	t.Helper()
	for i, problem := range verifyDir(p.dir) {
		if i < 5 {
			t.Errorf("check: %s", problem)
		}
	}
	lost := map[string]bool{}
	for _, l := range done.Lost {
		lost[l.Key] = true
	}
	s := mustOpen(t, p.options)
	defer s.Close()
	all, err := s.Range(t.Context(), storage.RangeRequest{Start: "/", End: "0"})
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]string{}
	for _, e := range all.Entries {
		there[e.Key] = string(e.Value)
		_, lives := p.live[e.Key]
		switch {
		case IsLost(e.Value) != lost[e.Key]:
			t.Errorf("%s is said to be lost: %v; its value is %.20q", e.Key, lost[e.Key], e.Value)
		case !lives && !IsLost(e.Value):
			t.Errorf("%s was deleted, and is back with revision %d", e.Key, e.ModRevision)
		}
	}
	for key, want := range p.live {
		got, ok := there[key]
		switch {
		case !ok:
			unknown := slices.ContainsFunc(done.Lost, func(l Lost) bool {
				return l.Revision == 0 && (path.Dir(l.Key) == path.Dir(key) || l.After < key && (l.Before == "" || key < l.Before))
			})
			if !unknown {
				t.Errorf("%s is missing, and nothing says so", key)
			}
		case !lost[key] && got != want:
			t.Errorf("%s has a value of %d bytes that was replaced: %v", key, len(got), slices.Contains(p.before[key], got))
		}
	}
}

// TestRepairOfKeptLog: if the log record of a change in the kept past is lost in a gap, the past begins after it.
// Without a gap in a table, a missing record may simply have been given up. A deletion whose version is lost is
// restored from the log.
func TestRepairOfKeptLog(t *testing.T) {
	for _, gaps := range [][]tableGap{nil, {{gap: gap{logKey(1), logKey(100)}}}} {
		clocks := newTwoClocks()
		s := mustOpen(t, Options{
			Dir: "d", FS: vfs.NewMem(), Clock: clocks.wall.now, Monotonic: clocks.monotonic, HistoryWindow: time.Minute, CompactInterval: time.Hour,
			Retention: storage.Retention{Rules: []storage.RetentionRule{{Keep: time.Hour}}},
		})
		for i := range 4 {
			mustCommit(t, s, storage.Put("/pods/a/x", fmt.Append(nil, i)))
		}
		lost := s.hub.durable.Load() - 1
		mustCommit(t, s, storage.Put("/pods/a/deleted", []byte("x")))
		deleted := mustCommit(t, s, storage.Delete("/pods/a/deleted"))
		for range 2 {
			clocks.pass(2 * time.Minute)
			s.compactor.compactWindow(s.lifetime.stopped)
		}
		for _, record := range [][]byte{
			logKey(lost), appendVersionKey(nil, "/pods/a/deleted", deleted), appendVersionKey(nil, "/pods/a/deleted", deleted-1),
		} {
			if err := s.db.Delete(record, pebble.NoSync); err != nil {
				t.Fatal(err)
			}
		}
		m := mender{store: s, gaps: gaps, done: &Repaired{}}
		if err := m.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := lost
		if gaps == nil {
			want = 0
		}
		if m.done.LogLost != want || slices.ContainsFunc(m.done.Lost, func(l Lost) bool { return l.Key == "/pods/a/deleted" }) {
			t.Errorf("%v: the log is lost to %d, want %d; %v", gaps, m.done.LogLost, want, m.done.Lost)
		}
		if floor := s.compactor.kept.floor(0, 0); m.kept.floor(0, m.compacted).Revision < want {
			t.Errorf("%v: the past begins at %d, was at %d, want %d", gaps, m.kept.floor(0, m.compacted).Revision, floor.Revision, want)
		}
		if e, _, err := s.Get(t.Context(), "/pods/a/deleted", 0); err != nil || e.ModRevision != 0 {
			t.Errorf("%v: the deleted object: %+v, %v", gaps, e, err)
		}
	}
}

// TestRepairGivesUpAgain restores log records that a compaction has removed, as if their deletions were lost. The
// repair must remove them again.
func TestRepairGivesUpAgain(t *testing.T) {
	o := Options{Dir: "d", FS: vfs.NewMem(), HistoryWindow: -1}
	s := mustOpen(t, o)
	mustCommit(t, s, storage.Put("/pods/a/deleted", []byte("x")))
	mustCommit(t, s, storage.Delete("/pods/a/deleted"))
	mustCommit(t, s, storage.Put("/pods/a/changed", []byte("x")))
	last := mustCommit(t, s, storage.Put("/pods/a/changed", []byte("y")))
	records := map[int64][]byte{}
	for revision := int64(2); revision <= last; revision++ {
		value, closer, err := s.db.Get(logKey(revision))
		if err != nil {
			t.Fatal(err)
		}
		records[revision] = bytes.Clone(value)
		closer.Close()
	}
	if err := s.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	for revision, record := range records {
		if err := s.db.Set(logKey(revision), record, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	m := mender{store: s, done: &Repaired{}}
	if err := m.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(m.done.Lost)+m.done.Past > 0 || m.done.LogLost != 0 {
		t.Errorf("nothing is lost, and the repair says %+v", m.done)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, o)
}
