package embedded

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage"
)

func collectRecords(t *testing.T, records iter.Seq2[Record, error]) []Record {
	t.Helper()
	var out []Record
	for r, err := range records {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func mustCommit(t *testing.T, s *Store, ops ...storage.Op) int64 {
	t.Helper()
	r, err := s.Commit(t.Context(), storage.Txn{Ops: ops})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestExportIsOneRevision exports the store during writes, and compares each export with a Range at its revision.
func TestExportIsOneRevision(t *testing.T) {
	s := mustOpen(t, Options{InMemory: true, HistoryWindow: -1})
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Sprintf("/%d/%d", i, n%50)
				op := storage.Put(key, []byte(fmt.Sprint(n)))
				if n%7 == 3 {
					op = storage.Delete(key)
				}
				_, _ = s.Commit(ctx, storage.Txn{Ops: []storage.Op{op}}) // the last call is cancelled
			}
		})
	}
	for range 20 {
		e, err := s.Export(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got := collectRecords(t, e.Records(ctx))
		want, err := s.Range(ctx, storage.RangeRequest{Revision: e.Revision()})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want.Entries) {
			t.Errorf("%d records at revision %d, want %d", len(got), e.Revision(), len(want.Entries))
		}
		for i := range min(len(got), len(want.Entries)) {
			if !reflect.DeepEqual(got[i].Entry, want.Entries[i]) {
				t.Errorf("record %+v, want %+v", got[i], want.Entries[i])
			}
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	writers.Wait()
}

func TestExportEndsAtClose(t *testing.T) {
	s := mustOpen(t, Options{InMemory: true})
	for i := range 10 {
		mustCommit(t, s, storage.Put(fmt.Sprintf("/%d", i), nil))
	}
	e, err := s.Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error)
	var last error
	for _, err := range e.Records(t.Context()) {
		if last = err; err == nil && s.lifetime.stopped.Err() == nil {
			go func() { closed <- s.Close() }()
			<-s.lifetime.stopped.Done()
		}
	}
	if !errors.Is(last, storage.ErrClosed) {
		t.Errorf("the records ended with %v", last)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := receive(t, "the store closes", closed); err != nil {
		t.Error(err)
	}
	if _, err := s.Export(t.Context()); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Export of a closed store: %v", err)
	}
}

// sizeOfTables returns the bytes of the tables among the files of a directory.
func sizeOfTables(t *testing.T, fs vfs.FS, dir string, names []string) (sum int64) {
	t.Helper()
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			info, err := fs.Stat(fs.PathJoin(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			sum += info.Size()
		}
	}
	return sum
}

// TestImport checks that an imported store has the state of the exported one, and that its history begins at the
// import.
func TestImport(t *testing.T) {
	fs := vfs.NewMem()
	from := mustOpen(t, Options{Dir: "from", FS: fs})
	for i := range 300 {
		mustCommit(
			t, from,
			storage.Op{Key: fmt.Sprintf("/k/%03d", i%200), Value: []byte(strings.Repeat("x", i*100)), TTL: int64(i % 2 * 1000)},
		)
	}
	mustCommit(t, from, storage.Delete("/k/007"))
	e, err := from.Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	want := collectRecords(t, e.Records(t.Context()))
	if err := Import(testOptions(Options{Dir: "to", FS: fs}), e.Revision()+10, e.Records(t.Context()), nil); err != nil {
		t.Fatal(err)
	}
	checkVerify(t, Options{Dir: "to", FS: fs})

	r, err := OpenReader(testOptions(Options{Dir: "to", FS: fs}))
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.Export()
	if err != nil {
		t.Fatal(err)
	}
	// The values, 2.9 MB of one letter, must be compressed already, because no merge follows an import.
	if names, err := fs.List("to"); err != nil {
		t.Fatal(err)
	} else if size := sizeOfTables(t, fs, "to", names); size == 0 || size > 1<<20 {
		t.Errorf("the tables have %d bytes", size)
	}
	if got := collectRecords(t, again.Records(t.Context())); !reflect.DeepEqual(got, want) ||
		again.Revision() != e.Revision()+10 {
		t.Errorf("%d records at revision %d, want %d", len(got), again.Revision(), len(want))
	}
	if err := errors.Join(again.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}

	to := mustOpen(t, Options{Dir: "to", FS: fs})
	if got, err := to.Revision(t.Context()); err != nil || got != e.Revision()+10 {
		t.Errorf("Revision %d, %v", got, err)
	}
	var compacted *storage.CompactedError
	if _, err := to.Watch(t.Context(), "", e.Revision()+10); !errors.As(err, &compacted) {
		t.Errorf("Watch from what came before: %v", err)
	}
	if r := mustCommit(t, to, storage.Put("/k/000", nil)); r != e.Revision()+11 {
		t.Errorf("the next revision is %d", r)
	}
	if count(t, to, prefixExpiry) != count(t, from, prefixExpiry) {
		t.Error("not all deadlines are in the index")
	}
	if err := Import(testOptions(Options{Dir: "to", FS: fs}), 1, e.Records(t.Context()), nil); !errors.Is(err, ErrLocked) {
		t.Errorf("Import into an open store: %v", err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Import(testOptions(Options{Dir: "to", FS: fs}), 1, e.Records(t.Context()), nil); err == nil {
		t.Error("a store was imported over another")
	}
}

// TestImportIsDurable checks that an imported store survives a power cut.
func TestImportIsDurable(t *testing.T) {
	mem := vfs.NewCrashableMem()
	records := func(yield func(Record, error) bool) {
		for i := range 1000 {
			if !yield(
				Record{Entry: storage.Entry{
					Key: fmt.Sprintf("/%04d", i), Value: make([]byte, 3000), CreateRevision: 1, ModRevision: 1,
				}},
				nil,
			) {
				return
			}
		}
	}
	if err := Import(testOptions(Options{Dir: "a/b/c", FS: mem}), 5, records, nil); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, Options{Dir: "a/b/c", FS: mem.CrashClone(vfs.CrashCloneCfg{})})
	if r, err := s.Range(t.Context(), storage.RangeRequest{CountOnly: true}); err != nil || r.Count != 1000 ||
		r.Revision != 5 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRefusedImports(t *testing.T) {
	entry := func(key string, create, mod int64) Record {
		return Record{Entry: storage.Entry{Key: key, CreateRevision: create, ModRevision: mod}}
	}
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		revision int64
		records  []Record
		err      error
	}{
		"no revision":         {0, nil, nil},
		"empty key":           {9, []Record{entry("", 1, 1)}, nil},
		"zero byte":           {9, []Record{entry("/\x00", 1, 1)}, nil},
		"out of order":        {9, []Record{entry("/b", 1, 1), entry("/a", 1, 1)}, nil},
		"twice":               {9, []Record{entry("/b", 1, 1), entry("/b", 1, 1)}, nil},
		"above the store":     {9, []Record{entry("/a", 1, 10)}, nil},
		"changed before made": {9, []Record{entry("/a", 3, 2)}, nil},
		"the source's error":  {9, []Record{entry("/a", 1, 1)}, broken},
	} {
		err := Import(testOptions(Options{InMemory: true}), c.revision, func(yield func(Record, error) bool) {
			for _, r := range c.records {
				if !yield(r, nil) {
					return
				}
			}
			if c.err != nil {
				yield(Record{}, c.err)
			}
		}, nil)
		if err == nil || c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReaderChangesNothing opens a Reader on the files of a killed process, and checks that the list of files
// stays the same.
func TestReaderChangesNothing(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := mustOpen(t, Options{Dir: "d", FS: mem})
	mustCommit(t, s, storage.Put("/a", []byte("1")))
	left := mem.CrashClone(vfs.CrashCloneCfg{})
	before, err := left.List("d")
	if err != nil {
		t.Fatal(err)
	}
	r, err := OpenReader(testOptions(Options{Dir: "d", FS: left}))
	if err != nil {
		t.Fatal(err)
	}
	if r.Revision() != 2 {
		t.Errorf("Revision %d", r.Revision())
	}
	if _, err := Open(testOptions(Options{Dir: "d", FS: left})); !errors.Is(err, ErrLocked) {
		t.Errorf("Open beside a Reader: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := left.List("d")
	if err != nil || len(after) != len(before) {
		t.Errorf("files %v, before %v, %v", after, before, err)
	}
	for _, dir := range []string{"none", ""} {
		if _, err := OpenReader(testOptions(Options{Dir: dir, FS: left})); err == nil {
			t.Errorf("a store was found in %q", dir)
		}
	}
}
