package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage"
)

func TestOpenLocked(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Options{Dir: dir})
	_, err := Open(testOptions(Options{Dir: dir}))
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "data directory "+dir+" is used by another process") {
		t.Errorf("second Open: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, Options{Dir: dir})
}

func TestOpenErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", file, filepath.Join(file, "below")} {
		_, err := Open(testOptions(Options{Dir: dir}))
		if err == nil || errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("Open(%q): %v", dir, err)
		}
	}
}

func TestOpenNewerFormat(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, Options{Dir: "d", FS: fs})
	if err := s.db.Set([]byte(metaFormat), encodeNumber(formatVersion+1), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the refusal leaves no lock behind
		if _, err := Open(testOptions(Options{Dir: "d", FS: fs})); !errors.Is(err, ErrNewerFormat) {
			t.Errorf("Open of a newer format: %v", err)
		}
	}
}

func TestMinRevision(t *testing.T) {
	o := Options{Dir: "d", FS: vfs.NewMem()}
	s := mustOpen(t, o)
	r, err := s.Commit(t.Context(), put("/a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	o.MinRevision = 1000
	for range 2 {
		s = mustOpen(t, o)
		if got, err := s.Revision(t.Context()); err != nil || got != 1000 {
			t.Errorf("Revision %d, %v", got, err)
		}
		if e, _, err := s.Get(t.Context(), "/a", 0); err != nil || e.ModRevision != r {
			t.Errorf("Get: %+v, %v", e, err)
		}
		var compacted *storage.CompactedError
		if _, err := s.Watch(t.Context(), "/", r+1); !errors.As(err, &compacted) || compacted.Compacted != 1000 {
			t.Errorf("Watch from before: %v", err)
		}
		s.Close()
	}
	s = mustOpen(t, o)
	if got, err := s.Commit(t.Context(), put("/a", "2")); err != nil || got != 1001 {
		t.Errorf("Commit: %d, %v", got, err)
	}
	s.Close()
	o.MinRevision = 5
	s = mustOpen(t, o)
	if got, err := s.Revision(t.Context()); err != nil || got != 1001 {
		t.Errorf("Revision %d, %v", got, err)
	}
}

func TestRefusedTransactions(t *testing.T) {
	s := mustOpen(t, Options{InMemory: true, MaxTxnBytes: 1000})
	ctx := t.Context()
	if _, err := s.Commit(ctx, put("/a", strings.Repeat("x", 999))); !errors.Is(err, storage.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if _, err := s.Commit(ctx, put("/a", strings.Repeat("x", 998))); err != nil {
		t.Errorf("just small enough: %v", err)
	}
	for _, txn := range []storage.Txn{
		put("", "1"),
		put("/a\x00b", "1"),
		{Conditions: []storage.Condition{{Key: "a\x00"}}},
		{Ops: []storage.Op{storage.Put("/a", nil), storage.Delete("/a")}},
		{Ops: []storage.Op{{Key: "/a", TTL: -1}}},
	} {
		if _, err := s.Commit(ctx, txn); err == nil {
			t.Errorf("Commit(%+v) succeeded", txn)
		}
	}
	if r, err := s.Revision(ctx); err != nil || r != 2 {
		t.Errorf("Revision %d, %v", r, err)
	}
}

func TestSpaceReserve(t *testing.T) {
	fs := vfs.NewMem()
	usage := func(avail uint64) { fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: avail, TotalBytes: 1 << 40}) }
	usage(1 << 30)
	s := mustOpen(t, Options{Dir: "d", FS: fs, ReserveBytes: 64 << 20})
	ctx := t.Context()
	if _, err := s.Commit(ctx, put("/a", "1")); err != nil {
		t.Fatal(err)
	}
	remove := storage.Txn{Ops: []storage.Op{storage.Delete("/a")}}
	for _, step := range []struct {
		avail            uint64
		putErr, eraseErr error
	}{
		{50 << 20, storage.ErrNoSpace, nil},
		{10 << 20, storage.ErrNoSpace, storage.ErrNoSpace},
		{100 << 20, nil, nil},
	} {
		usage(step.avail)
		s.space.update(s)
		if _, err := s.Commit(ctx, put("/b", "1")); !errors.Is(err, step.putErr) {
			t.Errorf("%d available, put: %v", step.avail, err)
		}
		if _, err := s.Commit(ctx, remove); !errors.Is(err, step.eraseErr) {
			t.Errorf("%d available, delete: %v", step.avail, err)
		}
		if _, err := s.Commit(ctx, storage.Txn{}); err != nil {
			t.Errorf("%d available, no operation: %v", step.avail, err)
		}
		if _, _, err := s.Get(ctx, "/b", 0); err != nil {
			t.Errorf("%d available, Get: %v", step.avail, err)
		}
	}
}

// TestBallast checks that the ballast exists while there is enough space, that it is removed when there is little, and
// that its space is not available to writes.
func TestBallast(t *testing.T) {
	const mib = 1 << 20
	fs := vfs.NewMem()
	usage := func(avail uint64) { fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: avail, TotalBytes: 1 << 40}) }
	there := func() bool {
		_, err := fs.Stat("d/" + ballastName)
		return err == nil
	}
	o := Options{Dir: "d", FS: fs, ReserveBytes: 64 * mib, SweepInterval: time.Hour}
	usage(1 << 30)
	s := mustOpen(t, o)
	for i, step := range []struct {
		avail   uint64
		ballast bool
		level   int32
	}{
		{1 << 30, true, spaceEnough},
		{40 * mib, true, spaceLow},
		{15 * mib, false, spaceCritical},
		{31 * mib, false, spaceCritical}, // 16 MiB of them were the ballast
		{33 * mib, false, spaceLow},
		{79 * mib, false, spaceLow},
		{80 * mib, true, spaceEnough},
		{64 * mib, true, spaceEnough},
	} {
		usage(step.avail)
		s.space.update(s)
		if level := s.space.level.Load(); level != step.level || there() != step.ballast {
			t.Errorf("step %d: level %d, ballast %v; want %d, %v", i, level, there(), step.level, step.ballast)
		}
	}
	// Open removes the ballast if the disk is full. Otherwise it notices that the ballast exists.
	for _, c := range []struct {
		avail uint64
		level int32
	}{{64 * mib, spaceEnough}, {2 * mib, spaceCritical}} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		usage(c.avail)
		s = mustOpen(t, o)
		if level := s.space.level.Load(); level != c.level || there() != (c.level == spaceEnough) {
			t.Errorf("opened with %d: level %d, ballast %v", c.avail, level, there())
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	usage(mib / 2)
	for range 2 { // the refusal leaves no lock behind
		if _, err := Open(testOptions(o)); err == nil ||
			!strings.Contains(err.Error(), "the disk is full: 524288 bytes are available") {
			t.Errorf("opened on a full disk: %v", err)
		}
	}
}

// TestErrorLogIsLimited checks that repeated errors of the database are logged only once per errorInterval.
func TestErrorLogIsLimited(t *testing.T) {
	var log strings.Builder
	l := &pebbleLogger{store: &Store{opts: Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}}}
	for i := range 1000 {
		l.Errorf("failure %d", i)
	}
	l.lastLogged.Store(0)
	l.Errorf("the last")
	if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), "withheld=999") {
		t.Errorf("%d lines: %s", lines, log.String())
	}
}

// fakeClock is a clock that tests set.
type fakeClock struct{ ms atomic.Int64 }

func (c *fakeClock) now() time.Time          { return time.UnixMilli(c.ms.Load()) }
func (c *fakeClock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// TestHistoryWindow checks when history is compacted, and that no record remains in the database that no read can
// reach.
func TestHistoryWindow(t *testing.T) {
	clock := &fakeClock{}
	clock.ms.Store(1e12)
	s := mustOpen(
		t,
		Options{
			InMemory: true, Clock: clock.now,
			HistoryWindow: time.Minute, CompactInterval: time.Hour, SweepInterval: time.Hour,
		},
	)
	ctx := t.Context()
	commit := func(txn storage.Txn) int64 {
		r, err := s.Commit(ctx, txn)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	commit(put("/a", "1"))
	commit(put("/b", "1"))
	r3 := commit(put("/a", "2"))
	s.compactor.compactWindow(s.lifetime.stopped) // records a sample with r3
	clock.advance(30 * time.Second)
	r4 := commit(put("/a", "3"))
	s.compactor.compactWindow(s.lifetime.stopped)
	clock.advance(29 * time.Second)
	s.compactor.compactWindow(s.lifetime.stopped)
	if got := s.Stats().CompactedRevision; got >= r3 {
		t.Errorf("compacted to %d within the window", got)
	}
	clock.advance(time.Second)
	s.compactor.compactWindow(s.lifetime.stopped)
	if got := s.Stats().CompactedRevision; got != r3 {
		t.Errorf("compacted to %d, want %d", got, r3)
	}
	if e, _, err := s.Get(ctx, "/a", r3); err != nil || string(e.Value) != "2" {
		t.Errorf("Get at the compaction revision: %+v, %v", e, err)
	}
	commit(storage.Txn{Ops: []storage.Op{storage.Delete("/a"), storage.Delete("/b")}})
	s.compactor.compactWindow(s.lifetime.stopped)
	clock.advance(time.Hour)
	s.compactor.compactWindow(s.lifetime.stopped)
	if got := s.Stats().CompactedRevision; got != r4+1 {
		t.Errorf("compacted to %d, want %d", got, r4+1)
	}
	if n := count(t, s, prefixVersion) + count(t, s, prefixLog) + count(t, s, prefixExpiry); n != 0 {
		t.Errorf("%d records are left of nothing", n)
	}
}

// TestExpiryIndex checks deadlines with a clock that is also set back, and that the index contains no record of a key
// that does not expire.
func TestExpiryIndex(t *testing.T) {
	clock := &fakeClock{}
	clock.ms.Store(1e12)
	s := mustOpen(t, Options{InMemory: true, Clock: clock.now, SweepInterval: time.Hour})
	ctx := t.Context()
	putTTL := func(key string, ttl int64) {
		if _, err := s.Commit(ctx, storage.Txn{Ops: []storage.Op{{Key: key, TTL: ttl}}}); err != nil {
			t.Fatal(err)
		}
	}
	keys := func() string {
		s.sweeper.sweep(s.lifetime.stopped)
		r, err := s.Range(ctx, storage.RangeRequest{})
		if err != nil {
			t.Fatal(err)
		}
		out := ""
		for _, e := range r.Entries {
			out += e.Key
		}
		return out
	}
	putTTL("/a", 10)
	putTTL("/b", 20)
	putTTL("/c", 1<<62)
	putTTL("/d", 10)
	putTTL("/d", 0)
	for _, step := range []struct {
		after time.Duration
		want  string
	}{
		{9999 * time.Millisecond, "/a/b/c/d"}, {2 * time.Second, "/b/c/d"}, {8 * time.Second, "/b/c/d"},
		{2 * time.Second, "/c/d"},
	} {
		clock.advance(step.after)
		if got := keys(); got != step.want {
			t.Errorf("after %v: %s, want %s", step.after, got, step.want)
		}
	}
	clock.advance(-time.Hour)
	putTTL("/e", 10)
	clock.advance(20 * time.Second)
	if got := keys(); got != "/c/d" {
		t.Errorf("the clock was set back: %s", got)
	}
	if _, err := s.Commit(ctx, storage.Txn{Ops: []storage.Op{storage.Delete("/c")}}); err != nil {
		t.Fatal(err)
	}
	if n := count(t, s, prefixExpiry); n != 0 {
		t.Errorf("%d deadlines are left", n)
	}
}

// TestExpiryOfDelayedTransaction delays a transaction between the computation of its deadline and its write for
// longer than its time to live, as if the process were suspended. The key must expire, even if a sweep ran
// meanwhile and removed another key.
func TestExpiryOfDelayedTransaction(t *testing.T) {
	for _, other := range []bool{false, true} {
		clock := &fakeClock{}
		clock.ms.Store(1e12)
		s := mustOpen(t, Options{InMemory: true, Clock: clock.now, SweepInterval: time.Hour})
		if other {
			mustCommit(t, s, storage.Op{Key: "/a", TTL: 1})
		}
		scheduled, reached, release := s.planner.scheduled, make(chan struct{}), make(chan struct{})
		s.planner.scheduled = func(deadline int64) {
			scheduled(deadline)
			close(reached)
			<-release
		}
		committed := make(chan error, 1)
		go func() {
			_, err := s.Commit(t.Context(), storage.Txn{Ops: []storage.Op{{Key: "/b", TTL: 1}}})
			committed <- err
		}()
		receive(t, "the deadline is scheduled", reached)
		clock.advance(time.Hour)
		swept := make(chan struct{})
		go func() {
			defer close(swept)
			s.sweeper.sweep(s.lifetime.stopped)
		}()
		if !other {
			receive(t, "the sweep ends", swept) // it finds no key and does not wait for the transaction
		}
		close(release)
		if err := receive(t, "the commit ends", committed); err != nil {
			t.Fatal(err)
		}
		receive(t, "the sweep ends", swept)
		s.sweeper.sweep(s.lifetime.stopped)
		if e, _, err := s.Get(t.Context(), "/b", 0); err != nil || e.ModRevision != 0 {
			t.Errorf("something else expired: %v; the key is at revision %d, %v", other, e.ModRevision, err)
		}
		if other {
			if from := s.sweeper.start.from.Load(); from == 0 {
				t.Error("what was swept is walked over again")
			}
		}
	}
}

// TestLargeHistory checks that a batch of old changes is limited in bytes, so that a watch from an old revision does
// not need much memory.
func TestLargeHistory(t *testing.T) {
	s := mustOpen(t, Options{InMemory: true, RingBytes: 1, HistoryWindow: -1})
	const values, size = 40, 256 << 10
	for i := range values {
		mustCommit(t, s, storage.Put(fmt.Sprint("/", i%3), bytes.Repeat([]byte{byte(i)}, size)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := s.Watch(ctx, "/", 2)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for next := int64(2); next < values+2; {
		b, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("waiting for revision %d: %v", next, err)
		}
		got := 0
		for _, e := range b.Events {
			if e.Entry.ModRevision != next {
				t.Fatalf("revision %d after %d", e.Entry.ModRevision, next-1)
			}
			next++
			got += len(e.Entry.Value) + len(e.Prev.Value)
		}
		if b.Revision != next-1 {
			t.Fatalf("a batch up to revision %d says %d", next-1, b.Revision)
		}
		if most := batchBytes + 2*size; got > most {
			t.Fatalf("a batch of %d bytes, at most %d are expected", got, most)
		}
	}
}

// count returns the number of records of the database with the given prefix.
func count(t *testing.T, s *Store, space byte) int {
	t.Helper()
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{space}, UpperBound: []byte{space + 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	return n
}

// TestOpensOtherCompression opens a store whose tables are compressed by another algorithm, as earlier versions of the
// program wrote them.
func TestOpensOtherCompression(t *testing.T) {
	o := Options{Dir: t.TempDir(), HistoryWindow: -1}
	s := mustOpen(t, o)
	const keys = 500
	key := func(i int) string { return fmt.Sprintf("/%03d", i) }
	for i := range keys {
		mustCommit(t, s, storage.Put(key(i), compressibleBytes(300, int64(i))))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	withDefaults := o.withDefaults()
	old := withDefaults.pebbleOptions(pebble.DefaultLogger, nil)
	for i := range old.Levels {
		old.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.SnappyCompression }
	}
	db, err := pebble.Open(o.Dir, old)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if problems := verifyDir(o.Dir); len(problems) > 0 {
		t.Errorf("check reports %q", problems)
	}
	s = mustOpen(t, o)
	for i := range keys {
		mustCommit(t, s, storage.Put(key(keys+i), compressibleBytes(300, int64(keys+i))))
	}
	if err := s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * keys {
		e, _, err := s.Get(t.Context(), key(i), 0)
		if err != nil || string(e.Value) != string(compressibleBytes(300, int64(i))) {
			t.Errorf("%s is %.20q, %v", key(i), e.Value, err)
		}
	}
}

// TestDamagedManifest checks that the error of a store without a usable manifest says what to do.
func TestDamagedManifest(t *testing.T) {
	for name, damage := range map[string]func(manifest string) error{
		"damaged": func(path string) error { return os.WriteFile(path, []byte("damaged"), 0o600) },
		"missing": os.Remove,
	} {
		dir := t.TempDir()
		s, err := Open(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		manifests, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
		if err != nil || len(manifests) == 0 {
			t.Fatalf("no manifest: %v", err)
		}
		for _, path := range manifests {
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
		}
		_, write := Open(Options{Dir: dir})
		_, read := OpenReader(Options{Dir: dir})
		for _, err := range []error{write, read} {
			if err == nil || !strings.Contains(err.Error(), "`keelson snapshot restore`") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
