package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/storage/embedded"
	"github.com/keelson-dev/keelson/test/rig"
)

// TestPowerCut takes the file system as it would be after a power cut, at a random
// moment under load: all that was synced, and a random part of what was not. The
// store must open on it by itself and hold what had been told by then.
func TestPowerCut(t *testing.T) {
	rng := rig.Seeded(t)
	l := newLedger()
	disk := vfs.NewCrashableMem()
	for round := range rig.Rounds(12, 2000) {
		disk = loadAndCut(t, rng, disk, l)
		// Open it, and cut again at once: what the first start showed may not be
		// lost by the second.
		s := openOn(t, disk)
		seen := map[int64]note{}
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
		told := l.copy()
		disk = cut(rng, disk)
		s.Close() //nolint:errcheck // its disk is of the past
		s = openOn(t, disk)
		verify(t, s, told)
		if round < 10 || round%100 == 99 {
			t.Logf("round %d: %d changes told, %+v", round, l.size(), s.Stats())
		}
		l.forget(s.Stats().CompactedRevision)
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

// cut returns the disk after a power cut. Now and then the system had written
// directories by itself before: else every file that was ever deleted would come
// back each time.
func cut(rng *rand.Rand, disk *vfs.MemFS) *vfs.MemFS {
	if dir, err := disk.OpenDir("data"); err == nil {
		if rng.IntN(10) == 0 {
			dir.Sync() //nolint:errcheck // it is memory
		}
		dir.Close() //nolint:errcheck // it is memory
	}
	return disk.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: []int{0, 10, 50, 90, 100}[rng.IntN(5)],
		RNG:                 rng,
	})
}

// loadAndCut runs writers and a watcher, with compaction, and returns the disk
// after the cut. The store of before is closed. What l holds had been told before
// the cut, except for what is added to it afterwards, which is thrown away.
func loadAndCut(t *testing.T, rng *rand.Rand, disk *vfs.MemFS, l *ledger) *vfs.MemFS {
	t.Helper()
	s, err := embedded.Open(options(embedded.Options{
		Dir: "data", FS: disk, HistoryWindow: 50 * time.Millisecond, CompactInterval: 10 * time.Millisecond,
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex // held by the cut, so that nobody is told during it
	over := false
	tell := func(n note) {
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
		wg.Go(func() { write(ctx, s, i, tell) }) //nolint:errcheck // ends with ctx
	}
	wg.Go(func() { watch(ctx, s, from+1, tell) }) //nolint:errcheck // ends with ctx
	time.Sleep(time.Duration(rng.Int64N(int64(100 * time.Millisecond))))
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
