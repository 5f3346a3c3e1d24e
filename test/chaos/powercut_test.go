package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/test/rig"
)

// TestPowerCut copies the file system as it would be after a power cut at a random moment under load: all data that
// was synced, and a random part of the rest. The store must open on it without help and have every acknowledged
// change.
func TestPowerCut(t *testing.T) {
	rng := rig.Seeded(t)
	l := newAcknowledgedChanges()
	disk := vfs.NewCrashableMem()
	for round := range rig.Rounds(12, 2000) {
		disk = loadAndCut(t, rng, disk, l)
		// Open it, and cut again at once: what the first start has read must not be lost in the second.
		s := openOn(t, disk)
		seen := map[int64]knownChange{}
		ctx := t.Context()
		current, err := s.Revision(ctx)
		if err != nil {
			t.Fatal(err)
		}
		history, _ := replay(ctx, t, s, current)
		for r, n := range history {
			seen[r] = n
			if err := l.add(n); err != nil {
				t.Error(err)
			}
		}
		acknowledged := l.copy()
		disk = cut(rng, disk)
		s.Close() //nolint:errcheck // its file system is no longer used
		s = openOn(t, disk)
		verify(t, s, acknowledged)
		if round < 10 || round%100 == 99 {
			t.Logf("round %d: %d changes acknowledged, %+v", round, l.size(), s.Stats())
		}
		l.forget(floorOf(s))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
}

func openOn(t *testing.T, disk *vfs.MemFS) *embedded.Store {
	t.Helper()
	s, err := embedded.Open(options(embedded.Options{Dir: "data", FS: disk}))
	if err != nil {
		t.Fatalf("the store does not open after a power cut: %v", err)
	}
	return s
}

// cut returns the disk after a power cut. Sometimes all directories are synced before, as the operating system does by
// itself. Otherwise every file that was ever deleted would exist again after each cut.
func cut(rng *rand.Rand, disk *vfs.MemFS) *vfs.MemFS {
	if dir, err := disk.OpenDir("data"); err == nil {
		if rng.IntN(10) == 0 {
			dir.Sync() //nolint:errcheck // the file system is in memory
		}
		dir.Close() //nolint:errcheck // the file system is in memory
	}
	return disk.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: []int{0, 10, 50, 90, 100}[rng.IntN(5)],
		RNG:                 rng,
	})
}

// loadAndCut runs writers and a watcher, with compaction, and returns the disk after the cut. It closes the old store.
// l has the changes that were acknowledged before the cut; later ones are not recorded.
func loadAndCut(t *testing.T, rng *rand.Rand, disk *vfs.MemFS, l *acknowledgedChanges) *vfs.MemFS {
	t.Helper()
	s, err := embedded.Open(options(embedded.Options{
		Dir: "data", FS: disk, HistoryWindow: 50 * time.Millisecond, CompactInterval: 10 * time.Millisecond,
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex // held during the cut, so that no change is recorded meanwhile
	over := false
	record := func(n knownChange) {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		if err := l.add(n); err != nil {
			t.Error(err)
		}
	}
	from, err := s.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		wg.Go(func() { write(ctx, s, i, record) }) //nolint:errcheck // ends when ctx does
	}
	wg.Go(func() { watch(ctx, s, from+1, record) })                      //nolint:errcheck // ends when ctx does
	time.Sleep(time.Duration(rng.Int64N(int64(100 * time.Millisecond)))) // the power is cut at a random moment
	mu.Lock()
	after := cut(rng, disk)
	over = true
	mu.Unlock()
	cancel()
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return after
}
