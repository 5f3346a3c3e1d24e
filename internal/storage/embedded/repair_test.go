package embedded

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/storage"
)

// storeToDamage returns the directory and the values of a store with a number of keys. All are in one table, and
// each value has size bytes. If history is kept, each key also has an older version.
func storeToDamage(t *testing.T, keys, size int) (dir string, values map[string]string) {
	t.Helper()
	dir, values = t.TempDir(), map[string]string{}
	s := mustOpen(t, Options{Dir: dir, HistoryWindow: -1})
	rng := rand.New(rand.NewPCG(1, uint64(size)))
	value := make([]byte, size)
	for round := range 2 {
		for i := range keys {
			for j := range value {
				value[j] = byte(rng.Uint32())
			}
			key := fmt.Sprintf("/registry/configmaps/default/%04d", i)
			mustCommit(t, s, storage.Put(key, value))
			if round == 1 {
				values[key] = string(value)
			}
		}
	}
	if err := s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, values
}

// damages are the ways in which a table may be damaged. Each function returns the remaining content, nil if the
// file is gone.
var damages = map[string]func(t *testing.T, content []byte) []byte{
	"64 bytes in a value": func(_ *testing.T, b []byte) []byte { return invert(b, len(b)/3, 64) },
	"one bit":             func(_ *testing.T, b []byte) []byte { b[len(b)/2] ^= 4; return b },
	"several blocks": func(_ *testing.T, b []byte) []byte {
		return invert(invert(invert(b, 10, 1), len(b)/4, 1), len(b)*3/4, 1)
	},
	"index": func(t *testing.T, b []byte) []byte {
		layout := layoutOf(t, b)
		return invert(b, int(layout.Index[0].Offset)+3, 8)
	},
	"index and a value": func(t *testing.T, b []byte) []byte {
		layout := layoutOf(t, b)
		return invert(invert(b, int(layout.Index[0].Offset)+3, 8), len(b)*2/3, 8)
	},
	"filter": func(t *testing.T, b []byte) []byte {
		layout := layoutOf(t, b)
		return invert(b, int(layout.Filter[0].Offset)+1, 2)
	},
	"a block of older values": func(t *testing.T, b []byte) []byte {
		layout := layoutOf(t, b)
		return invert(b, int(layout.ValueBlock[0].Offset)+3, 8)
	},
	"properties": func(t *testing.T, b []byte) []byte {
		layout := layoutOf(t, b)
		return invert(b, int(layout.Properties.Offset)+5, 2)
	},
	"footer":          func(_ *testing.T, b []byte) []byte { return invert(b, len(b)-4, 4) },
	"second half":     func(_ *testing.T, b []byte) []byte { return b[:len(b)/2] },
	"everything":      func(*testing.T, []byte) []byte { return []byte{} },
	"the file itself": func(*testing.T, []byte) []byte { return nil },
}

func invert(b []byte, at, n int) []byte {
	for i := at; i < at+n; i++ {
		b[i] ^= 0xff
	}
	return b
}

func layoutOf(t *testing.T, content []byte) *sstable.Layout {
	t.Helper()
	o := (&Options{}).pebbleOptions(pebble.DefaultLogger, nil)
	o.EnsureDefaults()
	layout, err := tableLayout(o, content)
	if err != nil {
		t.Fatal(err)
	}
	return layout
}

// TestRepair damages the only table of a store. Before a repair, each read fails or is right. After it, every key
// exists, either with its value or as a lost key that Repair has named, and the store has no other defect.
func TestRepair(t *testing.T) {
	for _, size := range []int{1 << 10, 200 << 10, 2 << 20}[:effort.Rounds(3, 2)] {
		keys := max(4, min(300, 3<<20/size))
		from, values := storeToDamage(t, keys, size)
		for what, damage := range damages {
			t.Run(fmt.Sprintf("%d bytes/%s", size, what), func(t *testing.T) {
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
					t.Fatal(err)
				}
				damageTable(t, dir, damage)
				readDamaged(t, dir, values)
				var lost []string
				done, err := Repair(t.Context(), testOptions(Options{Dir: dir}), RepairOptions{})
				if err != nil || len(done.Tables) != 1 {
					t.Fatalf("the repair: %d tables, %v", len(done.Tables), err)
				}
				for _, l := range done.Lost {
					lost = append(lost, l.Key)
				}
				t.Logf("%d of %d keys are lost, %d older versions, log to %d", len(lost), keys, done.Past, done.LogLost)
				checkRepaired(t, dir, values, lost)
				again, err := Repair(t.Context(), testOptions(Options{Dir: dir}), RepairOptions{})
				if err != nil || len(again.Tables)+len(again.Lost) > 0 {
					t.Errorf("a second repair: %+v, %v", again, err)
				}
			})
		}
	}
}

// damageTable damages the largest table of a store.
func damageTable(t *testing.T, dir string, damage func(*testing.T, []byte) []byte) {
	t.Helper()
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	var largest string
	var content []byte
	for _, name := range tables {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > len(content) {
			largest, content = name, b
		}
	}
	if content = damage(t, content); content == nil {
		err = os.Remove(largest)
	} else {
		err = os.WriteFile(largest, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// readDamaged reads all keys of a damaged store. Each read must return the right value or fail with a
// *storage.DamagedError of one line.
func readDamaged(t *testing.T, dir string, values map[string]string) {
	t.Helper()
	s, err := Open(testOptions(Options{Dir: dir, HistoryWindow: -1}))
	if err != nil {
		if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "keelson repair") {
			t.Errorf("opening fails without advice: %v", err)
		}
		return
	}
	defer s.Close()
	for key, want := range values {
		e, _, err := s.Get(t.Context(), key, 0)
		if err != nil {
			checkDamagedError(t, err)
		} else if string(e.Value) != want {
			t.Errorf("%s has another value, of %d bytes", key, len(e.Value))
		}
	}
	if _, err = s.Range(t.Context(), storage.RangeRequest{Start: "/", End: "0"}); err != nil {
		checkDamagedError(t, err)
	}
}

func checkDamagedError(t *testing.T, err error) {
	t.Helper()
	if text := err.Error(); !isDamaged(err) || strings.Contains(text, "\n") || strings.Contains(text, "carrier") {
		t.Errorf("the error is %q", text)
	}
}

// checkRepaired checks a store that was repaired: the keys in lost are lost, all others have their values, and a lost
// key can be deleted and created again.
func checkRepaired(t *testing.T, dir string, values map[string]string, lost []string) {
	t.Helper()
	for _, p := range verifyDir(dir) {
		t.Errorf("check: %s", p)
	}
	s := mustOpen(t, Options{Dir: dir, HistoryWindow: -1})
	defer s.Close()
	if all, err := s.Range(t.Context(), storage.RangeRequest{Start: "/", End: "0"}); err != nil {
		t.Errorf("a range of the repaired store: %v", err)
	} else {
		there := len(all.Entries)
		named := slices.DeleteFunc(all.Entries, func(e storage.Entry) bool { return strings.Contains(e.Key, "~lost") })
		if len(named) != len(values) && len(named) == there {
			t.Errorf("%d of %d keys are there, and no entry stands for others", len(named), len(values))
		}
	}
	for key, want := range values {
		e, _, err := s.Get(t.Context(), key, 0)
		switch {
		case err != nil:
			t.Errorf("%s: %v", key, err)
		case slices.Contains(lost, key) != IsLost(e.Value) && e.ModRevision != 0:
			t.Errorf("%s: it is said to be lost: %v; its value is %.20q", key, slices.Contains(lost, key), e.Value)
		case !slices.Contains(lost, key) && e.ModRevision != 0 && string(e.Value) != want:
			t.Errorf("%s has another value", key)
		}
	}
	for _, key := range lost[:min(len(lost), 3)] {
		mustCommit(t, s, storage.Delete(key))
		mustCommit(t, s, storage.Put(key, []byte("again")))
	}
	if err := s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
		t.Errorf("merging the repaired store: %v", err)
	}
}

// TestInterruptedRepair: a repair ends after it has replaced the tables, and is repeated. The second repair still
// knows the gaps of the damaged tables.
func TestInterruptedRepair(t *testing.T) {
	dir, values := storeToDamage(t, 20, 1000)
	damageTable(t, dir, damages["everything"])
	o := testOptions(Options{Dir: dir}).withDefaults()
	lock, err := pebble.LockDirectory(dir, o.FS)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replaceTables(t.Context(), &o, lock, &Repaired{}); err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	done, err := Repair(t.Context(), o, RepairOptions{})
	if err != nil || len(done.Tables) != 0 || len(done.Lost) == 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	checkRepaired(t, dir, values, []string{done.Lost[0].Key})
}

// TestMergesOverDamage: after a merge has read damaged data, the store still serves reads and writes of all other
// data.
func TestMergesOverDamage(t *testing.T) {
	dir, values := storeToDamage(t, 60, 20<<10)
	damageTable(t, dir, damages["64 bytes in a value"])
	failed := make(chan error, 1)
	s, err := Open(testOptions(Options{Dir: dir, HistoryWindow: -1, OnFailure: func(err error) { failed <- err }}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 2 { // twice, so that there is something to merge
		mustCommit(t, s, storage.Put(fmt.Sprintf("/registry/configmaps/default/%04d", 59*i), []byte("x")))
	}
	if err := s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err == nil {
		t.Fatal("merging damaged data succeeds")
	}
	for i := range 40 {
		mustCommit(t, s, storage.Put(fmt.Sprintf("/new/%d", i), []byte("x")))
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	readable := 0
	for key := range values {
		if _, _, err := s.Get(t.Context(), key, 0); err == nil {
			readable++
		}
	}
	if readable == 0 {
		t.Error("nothing can be read")
	}
	select {
	case err := <-failed:
		t.Errorf("the store has failed: %v", err)
	default:
	}
}

// TestRepairKeepsLivesApart loses the versions of an object. An earlier object had the same name; its versions
// must not count as older versions of this object.
func TestRepairKeepsLivesApart(t *testing.T) {
	s := mustOpen(t, Options{Dir: "d", FS: vfs.NewMem(), HistoryWindow: time.Hour})
	defer s.Close()
	const key = "/secrets/a/x"
	for _, op := range []storage.Op{
		storage.Put(key, []byte("first life")), storage.Delete(key), storage.Put(key, []byte("second")), storage.Put(key, []byte("life")),
	} {
		mustCommit(t, s, op)
	}
	last := s.hub.durable.Load()
	for _, revision := range []int64{last - 1, last} {
		if err := s.db.Delete(appendVersionKey(nil, key, revision), pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	m := mender{store: s, options: RepairOptions{UseOlder: true}, done: &Repaired{}}
	if err := m.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lost := m.done.Lost; len(lost) != 1 || lost[0] != (Lost{Key: key, Revision: last}) || m.done.Past != 1 {
		t.Errorf("lost: %+v, %d older versions, want revision %d without an older one, and one version before it", lost, m.done.Past, last)
	}
	if e, _, err := s.Get(t.Context(), key, 0); err == nil && string(e.Value) == "first life" {
		t.Error("the deleted object is back")
	}
}

// TestFillTable: a table reads the same after it was made larger.
func TestFillTable(t *testing.T) {
	dir, values := storeToDamage(t, 50, 1000)
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) != 1 {
		t.Fatal(tables, err)
	}
	o := (&Options{}).pebbleOptions(pebble.DefaultLogger, nil)
	o.EnsureDefaults()
	content, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	found := rescueTable(o, content)
	if len(found.gaps) > 0 {
		t.Errorf("an undamaged table has gaps: %v", found.gaps)
	}
	file := filepath.Join(dir, "filled")
	if err := found.write(vfs.Default, file, int64(len(content))+12345); err != nil {
		t.Fatal(err)
	}
	if content, err = os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	filled := rescueTable(o, content)
	records := 0
	for _, b := range filled.blocks {
		if err := filled.eachRecord(b, func(pebble.InternalKey, []byte, bool) error { records++; return nil }); err != nil {
			t.Error(err)
		}
	}
	if records < 4*len(values) { // each key has two versions, and each version a log record
		t.Errorf("%d records of %d keys", records, len(values))
	}
}

func isDamaged(err error) bool {
	var damaged *storage.DamagedError
	return errors.As(err, &damaged)
}
