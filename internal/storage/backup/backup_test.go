package backup_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/internal/storage/snapshot"
)

// now is the time of the tests.
var now = time.UnixMilli(1_700_000_000_000)

func options(fs vfs.FS, dir string) embedded.Options {
	return embedded.Options{
		FS: fs, Dir: dir, Clock: func() time.Time { return now }, SweepInterval: time.Hour,
		Logger: slog.New(slog.DiscardHandler),
	}
}

func open(t *testing.T, o embedded.Options) *embedded.Store {
	t.Helper()
	s, err := embedded.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // some tests close it before
	return s
}

// newFilledStore returns a store with some history. Its last revision is a deletion.
func newFilledStore(t *testing.T, o embedded.Options) *embedded.Store {
	t.Helper()
	s := open(t, o)
	for i := range 500 {
		op := storage.Op{
			Key: fmt.Sprintf("/registry/configmaps/default/c%03d", i*7%400), Value: []byte(strings.Repeat("v", i)),
			TTL: int64(i % 2 * i),
		}
		if _, err := s.Commit(t.Context(), storage.Txn{Ops: []storage.Op{op}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(
		t.Context(), storage.Txn{Ops: []storage.Op{storage.Delete("/registry/configmaps/default/c007")}},
	); err != nil {
		t.Fatal(err)
	}
	return s
}

func records(t *testing.T, s *embedded.Store) []embedded.Record {
	t.Helper()
	e, err := s.Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var out []embedded.Record
	for r, err := range e.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func save(t *testing.T, s *embedded.Store, past bool) []byte {
	t.Helper()
	e, err := s.Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var out bytes.Buffer
	if _, err := backup.Save(t.Context(), &out, e, backup.SaveOptions{Created: now, Program: "test", Past: past}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func revision(t *testing.T, s storage.Store) int64 {
	t.Helper()
	r, err := s.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRestore checks that a restore has the same objects with the same remaining times to live, at revisions above all
// earlier ones, and that all earlier revisions are compacted.
func TestRestore(t *testing.T) {
	fs := vfs.NewMem()
	from := newFilledStore(t, options(fs, "from"))
	file := save(t, from, false)
	want := records(t, from)
	for _, c := range []struct {
		name  string
		since time.Duration
		min   int64
	}{
		{"at once", 0, 0},
		{"a year later", 365 * 24 * time.Hour, 0},
		{"with a clock that is behind", -time.Hour, 0},
		{"above a revision", 0, 5_000_000_000},
		{"with a low revision", 0, 5},
	} {
		o := options(fs, "to")
		restored, err := backup.Restore(
			t.Context(), bytes.NewReader(file), o, backup.RestoreOptions{Now: now.Add(c.since), MinRevision: c.min},
		)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if restored.Entries != int64(len(want)) || restored.From != revision(t, from) {
			t.Errorf("%s: %+v", c.name, restored)
		}
		floor := max(revision(t, from)+1_000_000_000+100_000*int64(max(c.since, 0)/time.Second), c.min)
		to := open(t, o)
		got := records(t, to)
		if len(got) != len(want) {
			t.Fatalf("%s: %d entries, want %d", c.name, len(got), len(want))
		}
		last := int64(0)
		for i, r := range got {
			w := want[i]
			if r.Key != w.Key || !bytes.Equal(r.Value, w.Value) {
				t.Errorf("%s: %s became %s", c.name, w.Key, r.Key)
			}
			if r.ModRevision <= floor || r.CreateRevision != r.ModRevision || r.ModRevision <= last {
				t.Errorf(
					"%s: %s is at revision %d, made at %d; the floor is %d", c.name, r.Key, r.ModRevision, r.CreateRevision, floor,
				)
			}
			last = r.ModRevision
			deadline := int64(0)
			if w.Deadline != 0 {
				deadline = w.Deadline + c.since.Milliseconds()
			}
			if r.Deadline != deadline {
				t.Errorf("%s: %s ends at %d, want %d", c.name, r.Key, r.Deadline, deadline)
			}
		}
		if at := revision(t, to); at != restored.Revision || at != last {
			t.Errorf(
				"%s: the store is at revision %d, the last object at %d, Restore says %d", c.name, at, last, restored.Revision,
			)
		}
		var compacted *storage.CompactedError
		for _, old := range []int64{1, revision(t, from), floor} {
			if _, err := to.Watch(t.Context(), "/", old+1); !errors.As(err, &compacted) {
				t.Errorf("%s: a watch from %d: %v", c.name, old+1, err)
			}
			if _, _, err := to.Get(t.Context(), want[0].Key, old); !errors.As(err, &compacted) {
				t.Errorf("%s: a Get at %d: %v", c.name, old, err)
			}
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
		if err := fs.RemoveAll("to"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRestoreExpired checks that a key without remaining time to live expires after the restore.
func TestRestoreExpired(t *testing.T) {
	var file bytes.Buffer
	w, err := snapshot.NewWriter(&file, snapshot.Header{Revision: 10, Created: now})
	if err != nil {
		t.Fatal(err)
	}
	for key, deadline := range map[string]int64{"/a": now.UnixMilli() - 5000} {
		err = errors.Join(err, w.Write(snapshot.Entry{Key: key, CreateRevision: 1, ModRevision: 1, Deadline: deadline}))
	}
	err = errors.Join(
		err, w.Write(snapshot.Entry{Key: "/b", CreateRevision: 1, ModRevision: 1, Deadline: math.MaxInt64 - 5}),
	)
	if _, cerr := w.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
	later := now.Add(time.Hour)
	o := options(vfs.NewMem(), "to")
	if _, err := backup.Restore(
		t.Context(), bytes.NewReader(file.Bytes()), o, backup.RestoreOptions{Now: later},
	); err != nil {
		t.Fatal(err)
	}
	got := records(t, open(t, o))
	if got[0].Deadline != later.UnixMilli() || got[1].Deadline != math.MaxInt64-5 {
		t.Errorf("deadlines %d and %d", got[0].Deadline, got[1].Deadline)
	}
}

func TestRestoreEmpty(t *testing.T) {
	fs := vfs.NewMem()
	file := save(t, open(t, options(fs, "from")), false)
	restored, err := backup.Restore(t.Context(), bytes.NewReader(file), options(fs, "to"), backup.RestoreOptions{Now: now})
	if err != nil || restored.Revision < 1_000_000_000 {
		t.Fatalf("%+v, %v", restored, err)
	}
	if got := revision(t, open(t, options(fs, "to"))); got != restored.Revision {
		t.Errorf("revision %d, want %d", got, restored.Revision)
	}
}

// TestRestoreOfDamage checks that a restore writes nothing if the file is damaged at any place.
func TestRestoreOfDamage(t *testing.T) {
	fs := vfs.NewMem()
	file := save(t, newFilledStore(t, options(fs, "from")), false)
	file[len(file)-40] ^= 1
	_, err := backup.Restore(t.Context(), bytes.NewReader(file), options(fs, "to"), backup.RestoreOptions{Now: now})
	if !errors.Is(err, snapshot.ErrDamaged) {
		t.Errorf("%v", err)
	}
	if _, err := fs.Stat("to"); err == nil {
		t.Error("something was written")
	}
	if _, err := backup.Restore(
		t.Context(), bytes.NewReader(nil), options(fs, "to"), backup.RestoreOptions{Now: now},
	); !errors.Is(err, snapshot.ErrNotSnapshot) {
		t.Errorf("%v", err)
	}
}

func TestRevisionTooHigh(t *testing.T) {
	fs := vfs.NewMem()
	file := save(t, open(t, options(fs, "from")), false)
	_, err := backup.Restore(
		t.Context(), bytes.NewReader(file), options(fs, "to"), backup.RestoreOptions{Now: now, MinRevision: math.MaxInt64},
	)
	if err == nil {
		t.Error("a store was made that cannot go on")
	}
}

func export(t *testing.T, path, prefix string, s *embedded.Store) int64 {
	t.Helper()
	e, err := s.Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	n, err := backup.ExportEtcd(t.Context(), path, prefix, e, now)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestEtcdRoundTrip exports a store and imports it with its revisions. The result must be the same.
func TestEtcdRoundTrip(t *testing.T) {
	fs := vfs.NewMem()
	from := newFilledStore(t, options(fs, "from"))
	want := records(t, from)
	for _, prefix := range []string{"/registry", "/other/prefix/"} {
		path := filepath.Join(t.TempDir(), "etcd.db")
		if n := export(t, path, prefix, from); n != int64(len(want)) {
			t.Errorf("%d keys were exported, want %d", n, len(want))
		}
		o := options(fs, "to")
		restored, others, err := backup.ImportEtcd(t.Context(), path, o, backup.EtcdOptions{
			Prefix: prefix, Restore: backup.RestoreOptions{Now: now, KeepRevisions: true},
		})
		if err != nil || others != 0 || restored.Revision != revision(t, from) {
			t.Fatalf("%+v, %d others, %v", restored, others, err)
		}
		to := open(t, o)
		if got := records(t, to); !reflect.DeepEqual(got, want) {
			t.Errorf("%d entries came back differently", len(got))
		}
		if got := revision(t, to); got != revision(t, from) {
			t.Errorf("revision %d, want %d", got, revision(t, from))
		}
		if err := errors.Join(to.Close(), fs.RemoveAll("to")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEtcdImportRestamps checks that an import that does not keep revisions gives new ones, like a restore.
func TestEtcdImportRestamps(t *testing.T) {
	fs := vfs.NewMem()
	from := newFilledStore(t, options(fs, "from"))
	path := filepath.Join(t.TempDir(), "etcd.db")
	export(t, path, "/registry", from)
	if err := os.Chtimes(path, now, now); err != nil {
		t.Fatal(err)
	}
	later := now.Add(time.Hour)
	o := options(fs, "to")
	restored, _, err := backup.ImportEtcd(
		t.Context(), path, o, backup.EtcdOptions{Prefix: "/registry", Restore: backup.RestoreOptions{Now: later}},
	)
	if err != nil {
		t.Fatal(err)
	}
	floor := revision(t, from) + 1_000_000_000 + 3600*100_000
	want := records(t, from)
	for i, r := range records(t, open(t, o)) {
		if r.ModRevision <= floor || r.ModRevision > restored.Revision {
			t.Errorf("%s is at revision %d", r.Key, r.ModRevision)
		}
		if w := want[i].Deadline; w != 0 && r.Deadline != w+time.Hour.Milliseconds() || w == 0 && r.Deadline != 0 {
			t.Errorf("%s ends at %d, was %d", r.Key, r.Deadline, w)
		}
	}
}

func TestEtcdRefused(t *testing.T) {
	fs := vfs.NewMem()
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	export(t, good, "/registry", newFilledStore(t, options(fs, "from")))
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	changed := bytes.Clone(content)
	changed[9000] ^= 1
	plain := write("plain", content[:len(content)-32])
	eo := backup.EtcdOptions{Prefix: "/registry", Restore: backup.RestoreOptions{Now: now}}
	for name, c := range map[string]struct {
		path, prefix, want string
	}{
		"changed":      {write("changed", changed), "/registry", "its SHA-256 is wrong"},
		"no hash":      {plain, "/registry", "no SHA-256 at its end"},
		"other prefix": {good, "/reg", "no keys below /reg/"},
		"bad prefix":   {good, "registry", "the prefix must be a path"},
		"empty":        {write("empty", nil), "/registry", "no SHA-256 at its end"},
		"missing":      {filepath.Join(dir, "missing"), "/registry", "no such file"},
		"no database":  {write("zeros", withSum(make([]byte, 8192))), "/registry", "invalid"},
	} {
		o := eo
		o.Prefix = c.prefix
		_, _, err := backup.ImportEtcd(t.Context(), c.path, options(fs, "to"), o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if _, err := fs.Stat("to"); err == nil {
			t.Fatalf("%s: something was written", name)
		}
	}
	eo.SkipHash = true
	if _, _, err := backup.ImportEtcd(t.Context(), plain, options(fs, "to"), eo); err != nil {
		t.Errorf("a file without a hash: %v", err)
	}
	for at := 16; at < len(content)-32; at += 40_961 {
		broken := bytes.Clone(content[:len(content)-32])
		for i := at; i < min(at+64, len(broken)); i++ {
			broken[i] ^= 0xff
		}
		// The import may fail, but must not panic.
		_, _, _ = backup.ImportEtcd(
			t.Context(), write("broken", broken), embedded.Options{InMemory: true, Logger: slog.New(slog.DiscardHandler)}, eo,
		)
	}
}

func withSum(b []byte) []byte {
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

func TestSaveEndsWithItsContext(t *testing.T) {
	s := newFilledStore(t, options(vfs.NewMem(), "from"))
	ctx, stop := context.WithCancel(t.Context())
	e, err := s.Export(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	stop()
	if _, err := backup.Save(ctx, io.Discard, e, backup.SaveOptions{Created: now}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// BenchmarkSaveRestore saves and restores 100,000 small objects.
func BenchmarkSaveRestore(b *testing.B) {
	s, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	const objects, together = 100_000, 500
	for i := 0; i < objects; i += together {
		var ops []storage.Op
		for j := range together {
			ops = append(ops, storage.Put(fmt.Sprintf("/registry/configmaps/default/c%06d", i+j), make([]byte, 300)))
		}
		if _, err := s.Commit(b.Context(), storage.Txn{Ops: ops}); err != nil {
			b.Fatal(err)
		}
	}
	file := filepath.Join(b.TempDir(), "file")
	b.Run("save", func(b *testing.B) {
		for b.Loop() {
			e, err := s.Export(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			f, err := os.Create(file)
			if err != nil {
				b.Fatal(err)
			}
			_, err = backup.Save(b.Context(), f, e, backup.SaveOptions{Created: time.Now()})
			if err := errors.Join(err, f.Sync(), f.Close(), e.Close()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("restore", func(b *testing.B) {
		for b.Loop() {
			f, err := os.Open(file)
			if err != nil {
				b.Fatal(err)
			}
			_, err = backup.Restore(
				b.Context(), f, embedded.Options{Dir: filepath.Join(b.TempDir(), "d")}, backup.RestoreOptions{Now: time.Now()},
			)
			if err := errors.Join(err, f.Close()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestRestorePast checks that a snapshot with the past restores the past: every state at every kept revision, and
// the authors of the changes. The restore itself is one more change. The restored versions are removed when their
// retention has passed.
func TestRestorePast(t *testing.T) {
	fs, all := vfs.NewMem(), storage.Scope{}
	at := now
	o := options(fs, "from")
	o.HistoryWindow, o.CompactInterval, o.Clock = time.Millisecond, time.Hour, func() time.Time { return at }
	o.Retention = storage.Retention{Rules: []storage.RetentionRule{{Scope: all, Keep: 20 * time.Minute}}, Bytes: -1}
	from := open(t, o)
	key := func(i int) string { return fmt.Sprintf("/registry/configmaps/default/c%d", i) }
	for i := range 300 {
		op := storage.Put(key(i%7), []byte(strings.Repeat("v", i)))
		if i%11 == 10 {
			op = storage.Delete(key(i % 7))
		}
		if _, err := from.Commit(t.Context(), storage.Txn{Ops: []storage.Op{op}, By: fmt.Appendf(nil, "by %d", i)}); err != nil {
			t.Fatal(err)
		}
		at = at.Add(10 * time.Second)
		if i%100 == 50 { // versions that are too old are removed
			if err := from.Compact(t.Context(), revision(t, from)); err != nil {
				t.Fatal(err)
			}
		}
	}
	end, floor := revision(t, from), from.Floor(all)
	if floor < 10 || floor > end-100 {
		t.Fatalf("the floor is %d of %d", floor, end)
	}
	file := save(t, from, true)
	plain := save(t, from, false)
	if bytes.HasPrefix(plain, []byte("KEELSON-SNAPSHOT 2")) || !bytes.HasPrefix(file, []byte("KEELSON-SNAPSHOT 2")) {
		t.Error("only a snapshot with the past has format 2")
	}
	restored := at.Add(time.Minute)
	to := o
	to.Dir, to.Clock = "to", func() time.Time { return restored }
	result, err := backup.Restore(
		t.Context(), bytes.NewReader(file), to, backup.RestoreOptions{Now: restored, By: []byte("restore")},
	)
	if err != nil || result.Past == 0 {
		t.Fatal(result, err)
	}
	checkWhole(t, to)
	s := open(t, to)
	if s.Floor(all) != floor {
		t.Errorf("the floor is %d, was %d", s.Floor(all), floor)
	}
	for r := floor; r <= end; r++ {
		for i := range 7 {
			want, err := from.GetAt(t.Context(), all, key(i), r)
			got, err2 := s.GetAt(t.Context(), all, key(i), r)
			if err != nil || err2 != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s at %d: %+v (%v), want %+v (%v)", key(i), r, got, err2, want, err)
			}
		}
	}
	for i := range 7 {
		want, _, err := from.Versions(t.Context(), storage.VersionsRequest{Key: key(i), Limit: 1000})
		got, _, err2 := s.Versions(t.Context(), storage.VersionsRequest{Key: key(i), Limit: 1000})
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if last := want[0]; !last.Deleted {
			change := got[0]
			if string(change.By) != "restore" || !change.Time.Equal(restored) || change.Entry.ModRevision <= end ||
				change.Entry.CreateRevision != last.Entry.CreateRevision || !bytes.Equal(change.Entry.Value, last.Entry.Value) {
				t.Errorf("the restore of %s: %+v", key(i), change)
			}
			got = got[1:]
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %d versions, want %d", key(i), len(got), len(want))
		}
	}
	for _, since := range []time.Duration{time.Minute, 17 * time.Minute} {
		want, err := from.RevisionAt(t.Context(), all, at.Add(-since))
		got, err2 := s.RevisionAt(t.Context(), all, at.Add(-since))
		if err != nil || err2 != nil || got != want {
			t.Errorf("%s before the end: %d (%v), want %d (%v)", since, got, err2, want, err)
		}
	}
	var compacted *storage.CompactedError
	if _, err := s.Watch(t.Context(), "/", end); !errors.As(err, &compacted) {
		t.Errorf("a watch of the past: %v", err)
	}
	// Two hours later only the present objects are left.
	restored = restored.Add(2 * time.Hour)
	if err := s.Compact(t.Context(), revision(t, s)); err != nil {
		t.Fatal(err)
	}
	if kept := s.Kept(); kept.Bytes != 0 {
		t.Errorf("%d bytes are kept", kept.Bytes)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if seen := checkWhole(t, to); seen.Versions != seen.Keys || seen.LogRecords != 0 {
		t.Errorf("%+v", seen)
	}
	// A store that keeps no history restores only the present objects.
	to.Dir, to.Retention = "small", storage.Retention{}
	if _, err := backup.Restore(t.Context(), bytes.NewReader(file), to, backup.RestoreOptions{Now: restored}); err != nil {
		t.Fatal(err)
	}
	if got, want := len(records(t, open(t, to))), len(records(t, from)); got != want {
		t.Errorf("%d entries, want %d", got, want)
	}
}

// checkWhole verifies a closed store.
func checkWhole(t *testing.T, o embedded.Options) embedded.Verified {
	t.Helper()
	r, err := embedded.OpenReader(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	seen, err := r.Verify(t.Context(), embedded.Checks{}, func(p embedded.Problem) { t.Error(p) })
	if err != nil {
		t.Fatal(err)
	}
	return seen
}
