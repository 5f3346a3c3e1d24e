package embedded

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/storagetest"
)

// testOptions returns o without log output and with short intervals. Unless o names a file system, files are not synced.
func testOptions(o Options) Options {
	o.Logger = slog.New(slog.DiscardHandler)
	if o.FS == nil && !o.InMemory && o.Image == nil {
		o.FS = unsyncedFS{vfs.Default}
	}
	setDefault(&o.SweepInterval, 50*time.Millisecond)
	return o
}

// unsyncedFS writes files without syncing them. This only makes a difference after a power cut.
type unsyncedFS struct{ vfs.FS }

func (fs unsyncedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return unsynced(fs.FS.Create(name, c))
}

func (fs unsyncedFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return unsynced(fs.FS.OpenReadWrite(name, c, opts...))
}

func (fs unsyncedFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return unsynced(fs.FS.ReuseForWrite(from, to, c))
}

func (fs unsyncedFS) OpenDir(name string) (vfs.File, error) { return unsynced(fs.FS.OpenDir(name)) }

type unsyncedFile struct{ vfs.File }

func unsynced(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

func (unsyncedFile) Sync() error                { return nil }
func (unsyncedFile) SyncData() error            { return nil }
func (unsyncedFile) SyncTo(int64) (bool, error) { return true, nil }

// mustOpen opens a store with testOptions. For a benchmark, it keeps the syncs, so that their time is measured.
func mustOpen(t testing.TB, o Options) *Store {
	t.Helper()
	if _, measures := t.(*testing.B); measures && o.FS == nil && !o.InMemory && o.Image == nil {
		o.FS = vfs.Default
	}
	s, err := Open(testOptions(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func reopen(t *testing.T, s storage.Store) storage.Store {
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	return mustOpen(t, s.(*Store).opts)
}

func TestConformanceOnDisk(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store {
		return mustOpen(t, Options{Dir: t.TempDir(), FS: vfs.Default})
	}, storagetest.WithReopen(reopen))
}

func TestConformanceInMemory(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store {
		return mustOpen(t, Options{InMemory: true})
	})
}

// TestConformanceOnGivenFiles runs the suite on a file system in memory that survives the store.
func TestConformanceOnGivenFiles(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store {
		return mustOpen(t, Options{InMemory: true, FS: vfs.NewMem()})
	}, storagetest.WithReopen(reopen))
}

// TestConformanceSmall runs the suite with limits so small that watchers fall behind the ring, and that the database
// flushes and merges all the time.
func TestConformanceSmall(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store {
		return mustOpen(t, Options{
			InMemory: true, FS: vfs.NewMem(), RingBytes: 1 << 10, MemTableBytes: 64 << 10, CacheBytes: 64 << 10,
		})
	}, storagetest.WithReopen(reopen))
}

// receive returns the next value of a channel. The test fails if none arrives within a minute.
func receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("%s: not within a minute", what)
		panic("unreachable")
	}
}

// TestRangeEndsAfterBytes checks that a page ends at the first value that reaches its limit in bytes.
func TestRangeEndsAfterBytes(t *testing.T) {
	s, err := Open(Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const size = 1000
	for i := range 10 {
		txn := storage.Txn{Ops: []storage.Op{storage.Put(fmt.Sprintf("/k/%d", i), make([]byte, size))}}
		if _, err := s.Commit(t.Context(), txn); err != nil {
			t.Fatal(err)
		}
	}
	for bytes, want := range map[int]int{1: 1, size: 1, size + 1: 2, 3 * size: 3, 9*size + 1: 10, 100 * size: 10, 0: 10} {
		page, err := s.Range(t.Context(), storage.RangeRequest{Start: "/k/", Bytes: bytes})
		if err != nil || len(page.Entries) != want || page.More != (want < 10) || page.Count != 10 {
			t.Errorf("%d bytes: %d entries, want %d; more %v, count %d, %v",
				bytes, len(page.Entries), want, page.More, page.Count, err)
		}
	}
}
