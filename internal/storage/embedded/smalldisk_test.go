package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/storage"
)

// smallDisk is a file system with one directory and a limited size. It reports the free space, and writes fail when
// there is none.
type smallDisk struct {
	vfs.FS
	dir   string
	size  int64
	mu    sync.Mutex // guards the fields below
	least int64      // the least free space so far
	known int64      // lower bound of the free space: the last count minus the writes since then
}

func newSmallDisk(dir string, size int64) *smallDisk {
	return &smallDisk{FS: vfs.NewMem(), dir: dir, size: size, least: size}
}

// left returns the free space in bytes.
func (d *smallDisk) left() int64 {
	names, err := d.FS.List(d.dir)
	if err != nil {
		return d.size
	}
	left := d.size
	for _, name := range names {
		if info, err := d.FS.Stat(d.FS.PathJoin(d.dir, name)); err == nil {
			left -= info.Size()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.least = min(d.least, left)
	d.known = left
	return max(left, 0)
}

// take reports whether n bytes are free, and counts them as used. It measures the file sizes again once per
// megabyte, and whenever little space is known to be free.
func (d *smallDisk) take(n int64) bool {
	d.mu.Lock()
	known := d.known
	d.known -= n
	d.mu.Unlock()
	if known > 2<<20 && known>>20 == (known-n)>>20 {
		return true
	}
	return d.left() >= n
}

func (d *smallDisk) lowest() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.least
}

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	left := uint64(d.left())
	return vfs.DiskUsage{AvailBytes: left, TotalBytes: uint64(d.size), UsedBytes: uint64(d.size) - left}, nil
}

func (d *smallDisk) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &smallFile{f, d}, nil
}

func (d *smallDisk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return d.wrap(d.FS.Create(name, category))
}

func (d *smallDisk) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return d.wrap(d.FS.ReuseForWrite(from, to, category))
}

func (d *smallDisk) Unwrap() vfs.FS { return d.FS }

type smallFile struct {
	vfs.File
	disk *smallDisk
}

func (f *smallFile) Write(b []byte) (int, error) {
	if !f.disk.take(int64(len(b))) {
		return 0, syscall.ENOSPC
	}
	return f.File.Write(b)
}

// randomBytes returns a value that cannot be compressed.
func randomBytes(size int, seed uint64) []byte {
	b := make([]byte, size)
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := 0; i+8 <= size; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
	}
	return b
}

// eventually waits until done returns true. The test fails after two minutes.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within two minutes", what)
		}
	}
}

// TestCompactionFreesSpace overwrites a few large values until writes are refused. When the old values have left the
// history window, almost all of the space must become free without further writes, and writes must be accepted again.
func TestCompactionFreesSpace(t *testing.T) {
	const keys, value, mb = 10, 200 << 10, 1 << 20
	size, reserve := int64(effort.Rounds(80, 48)*mb), int64(16*mb)
	if os.Getenv("KEELSON_LONG") != "" {
		size, reserve = 700*mb, 64*mb
	}
	disk := newSmallDisk("d", size)
	clock := &fakeClock{}
	clock.ms.Store(1e12)
	s := mustOpen(t, Options{
		FS: disk, Dir: "d", Clock: clock.now, MemTableBytes: 2 * mb, ReserveBytes: reserve,
		HistoryWindow: time.Hour, CompactInterval: 50 * time.Millisecond,
	})
	write := func(i int) error {
		put := storage.Put(fmt.Sprintf("/%d", i%keys), randomBytes(value, uint64(i)))
		_, err := s.Commit(t.Context(), storage.Txn{Ops: []storage.Op{put}})
		return err
	}
	written := 0
	for ; ; written++ {
		if err := write(written); errors.Is(err, storage.ErrNoSpace) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("full after %d MB: %d MB are left", written*value/mb, disk.left()/mb)
	durable := s.hub.durable.Load()
	eventually(t, "all of it is compacted", func() bool {
		clock.advance(time.Hour)
		return s.Stats().CompactedRevision == durable
	})
	eventually(t, "values are accepted again", func() bool { return write(0) == nil })
	eventually(t, "the space is free", func() bool {
		var tables int64
		for _, level := range s.db.Metrics().Levels {
			tables += int64(level.TablesSize)
		}
		return tables < 2*keys*value+reclaimMinBytes // this much garbage may remain
	})
	t.Logf("%d MB are left in the end, %d MB were at the worst", disk.left()/mb, disk.lowest()/mb)
	for i := range keys {
		if e, _, err := s.Get(t.Context(), fmt.Sprintf("/%d", i), 0); err != nil || len(e.Value) != value {
			t.Errorf("/%d has %d bytes, %v", i, len(e.Value), err)
		}
	}
}

// TestLowSpaceShortensHistoryWindow checks that a disk that is full of history accepts writes again before the history
// window has passed.
func TestLowSpaceShortensHistoryWindow(t *testing.T) {
	if !effort.Full() {
		t.Skip("it takes seconds, most of them for random bytes; KEELSON_SLOW=1 runs it, as .ci/run does")
	}
	const value, mb = 256 << 10, 1 << 20
	disk := newSmallDisk("d", 64*mb)
	clock := &fakeClock{}
	clock.ms.Store(1e12)
	s := mustOpen(t, Options{
		FS: disk, Dir: "d", Clock: clock.now, MemTableBytes: mb, ReserveBytes: 16 * mb, HistoryWindow: 24 * time.Hour,
	})
	put := func() error {
		_, err := s.Commit(
			t.Context(), storage.Txn{Ops: []storage.Op{storage.Put("/a", randomBytes(value, uint64(disk.left())))}},
		)
		return err
	}
	for {
		if err := put(); errors.Is(err, storage.ErrNoSpace) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if c := s.Stats().CompactedRevision; c != 0 {
		t.Errorf("compacted to %d within %v", c, lowSpaceWindow)
	}
	for written := range disk.size / value {
		eventually(t, fmt.Sprintf("value %d is accepted on the full disk", written), func() bool {
			err := put()
			if err != nil {
				clock.advance(time.Second)
			}
			return err == nil
		})
	}
}

// TestMergesKeepTheReserve fills a disk with live values in an order that requires merges. The merges must not use the
// space that is reserved for the log, and deletions and reads must work on the full disk.
func TestMergesKeepTheReserve(t *testing.T) {
	if !effort.Full() {
		t.Skip("it takes seconds, most of them for random bytes; KEELSON_SLOW=1 runs it, as .ci/run does")
	}
	const reserve, mb = 16 << 20, 1 << 20
	seeds := uint64(1)
	if os.Getenv("KEELSON_LONG") != "" {
		seeds = 10
	}
	for seed := range seeds {
		disk := newSmallDisk("d", 80*mb)
		s := mustOpen(t, Options{FS: disk, Dir: "d", MemTableBytes: mb, ReserveBytes: reserve, HistoryWindow: -1})
		rng := rand.New(rand.NewPCG(seed, 1))
		put := func() error {
			put := storage.Put(fmt.Sprintf("/%08x", rng.Uint32()), randomBytes(20_000, rng.Uint64()))
			_, err := s.Commit(t.Context(), storage.Txn{Ops: []storage.Op{put}})
			return err
		}
		for refused := 0; refused < 200; {
			switch err := put(); {
			case errors.Is(err, storage.ErrNoSpace):
				refused++
				time.Sleep(5 * time.Millisecond)
			case err != nil:
				t.Fatal(err)
			}
		}
		// Merges may write mergeCheckBytes more than allowed between two checks, and a flush writes the memtables.
		if least := disk.lowest(); least < reserve/4 {
			t.Errorf("%d KB were left at the worst, %d are reserved", least>>10, reserve>>10)
		} else {
			t.Logf("%d KB were left at the worst, %d are now", least>>10, disk.left()>>10)
		}
		r, err := s.Range(t.Context(), storage.RangeRequest{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Entries {
			if _, err := s.Commit(context.Background(), storage.Txn{Ops: []storage.Op{storage.Delete(e.Key)}}); err != nil {
				t.Fatalf("a deletion: %v", err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReclaimMergesOnlyGarbage checks that the reclaimer merges the spans that are mostly garbage, and does not
// merge spans with little garbage among many live values.
func TestReclaimMergesOnlyGarbage(t *testing.T) {
	s := mustOpen(t, Options{InMemory: true, HistoryWindow: -1, ReserveBytes: -1})
	for i := range 400 {
		mustCommit(t, s, storage.Put(fmt.Sprintf("/live/%03d", i), randomBytes(20_000, uint64(i))))
	}
	for i := range 300 { // 60 KB of 6 MB are live
		mustCommit(t, s, storage.Put(fmt.Sprintf("/often/%d", i%3), randomBytes(20_000, uint64(i))))
	}
	for i := range 40 { // 10 % of the live values are overwritten
		mustCommit(t, s, storage.Put(fmt.Sprintf("/live/%03d", i*10), randomBytes(20_000, uint64(i))))
	}
	if err := s.Compact(t.Context(), s.hub.durable.Load()); err != nil {
		t.Fatal(err)
	}
	if err := s.db.flushMemTables(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := s.reclaimer.take()
	if want := int64(337 * 20_000); g.total < want || g.total > want+337*100 {
		t.Errorf("%d bytes of garbage, want %d and some for keys", g.total, want)
	}
	steps, rest, err := s.reclaimer.plan(&g, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) != 1 || steps[0].first != "/often/0" || steps[0].last != "/often/2" {
		t.Errorf("%d spans are merged: %+v", len(steps), steps)
	}
	if len(rest.spans) != 40 || rest.total < 40*20_000 {
		t.Errorf("%d spans with %d bytes are left for later", len(rest.spans), rest.total)
	}
}

// TestGarbageInTables checks that garbage is counted exactly while it is not merged, and no longer after that.
func TestGarbageInTables(t *testing.T) {
	s := mustOpen(t, Options{InMemory: true, HistoryWindow: -1, ReserveBytes: -1})
	s.merges.mu.Lock()
	s.merges.retry.notBefore = time.Now().Add(time.Hour) // no merge starts
	s.merges.mu.Unlock()
	for i := range 101 {
		mustCommit(t, s, storage.Put("/often", randomBytes(20_000, uint64(i))))
	}
	if err := s.db.flushMemTables(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Compact(t.Context(), s.hub.durable.Load()); err != nil {
		t.Fatal(err)
	}
	if err := s.db.flushMemTables(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := s.reclaimer.take()
	const someKeys = 10_000 // deletions of log records are counted too
	if left, err := s.reclaimer.garbageInTables(); err != nil || left < g.total || left > g.total+someKeys {
		t.Errorf("%d bytes (%v), %d were deleted", left, err, g.total)
	}
	s.merges.retryNow()
	if err := s.reclaimer.mergeSpan(t.Context(), g.spans[0]); err != nil {
		t.Fatal(err)
	}
	if left, err := s.reclaimer.garbageInTables(); err != nil || left > someKeys {
		t.Errorf("%d bytes (%v) after everything was merged", left, err)
	}
}

// TestReclaimerPauses checks that a reclaimer that is woken continuously flushes the memtables once and then pauses.
func TestReclaimerPauses(t *testing.T) {
	s := mustOpen(t, Options{InMemory: true, HistoryWindow: -1, ReserveBytes: -1})
	began, flushes := time.Now(), func() int64 { return s.db.Metrics().Flush.Count }
	before := flushes()
	const writes = 200
	for i := range writes {
		mustCommit(t, s, storage.Put("/a", randomBytes(100, uint64(i))))
		select {
		case s.reclaimer.wake <- struct{}{}:
		default:
		}
		time.Sleep(time.Millisecond)
	}
	// On a slow machine this takes seconds, and the reclaimer may flush more than once.
	most := 2 + int64(time.Since(began)/time.Second)
	if n := flushes() - before; n == 0 || n > most {
		t.Errorf("%d flushes, want at least one and at most %d", n, most)
	}
}

// TestReclaimIsTriedAgain: if a merge was not done in time, it is tried again, also if nothing is written any more.
func TestReclaimIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r := &reclaimer{db: &database{space: new(diskSpace)}, wake: make(chan struct{}, 1)}
		r.garbage.add("/a", "/a", 2*reclaimMinBytes)
		r.wakeIfNeeded(false)
		var times []time.Duration
		began := time.Now()
		r.run(ctx, func(context.Context) (bool, error) {
			times = append(times, time.Since(began))
			if len(times) < 3 {
				return false, context.DeadlineExceeded
			}
			r.take()
			return true, nil
		})
		if want := []time.Duration{0, reclaimPause, 2 * reclaimPause}; !slices.Equal(times, want) {
			t.Errorf("it was tried after %v, want %v", times, want)
		}
	})
}

// TestLogOfLowSpace checks that low space is logged when it begins, once a minute while it lasts, and when it
// ends.
func TestLogOfLowSpace(t *testing.T) {
	disk := vfs.NewMem()
	var lines bytes.Buffer
	var up time.Duration
	s := &Store{merges: &mergeScheduler{}, opts: Options{
		FS: disk, Dir: "", ReserveBytes: 64 << 20, Logger: slog.New(slog.NewTextHandler(&lines, nil)),
		Monotonic: func() time.Duration { return up },
	}}
	s.space.ballast.Store(true)
	for _, step := range []struct {
		at        time.Duration
		available uint64
		want      string
	}{
		{time.Hour, 100 << 20, ""}, {time.Hour, 60 << 20, "writes are refused"}, {time.Hour + 59*time.Second, 50 << 20, ""},
		{time.Hour + 60*time.Second, 10 << 20, "writes are refused"}, {time.Hour + 61*time.Second, 10 << 20, ""},
		{time.Hour + 62*time.Second, 200 << 20, "writes are accepted"}, {2 * time.Hour, 200 << 20, ""},
	} {
		disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: step.available, TotalBytes: 1 << 30})
		lines.Reset()
		up = step.at
		s.space.update(s)
		if got := lines.String(); (step.want == "") != (got == "") || !strings.Contains(got, step.want) {
			t.Errorf("at %v with %d bytes: %q, want %q", step.at, step.available, got, step.want)
		}
	}
}
