package embedded

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage"
)

// TestHold holds changes for a copy: beyond the window and a restart, and no longer than there is space.
func TestHold(t *testing.T) {
	clocks := newTwoClocks()
	o := Options{
		Dir: "d", FS: vfs.NewMem(), Clock: clocks.wall.now, Monotonic: clocks.monotonic, SweepInterval: time.Hour,
		HistoryWindow: time.Minute, CompactInterval: time.Hour, Hold: true, Retention: storage.Retention{Bytes: 100_000},
	}
	s := mustOpen(t, o)
	// write changes one key n times, while more time passes than the window, and compacts.
	write := func(n, size int) int64 {
		t.Helper()
		revision := int64(0)
		for i := range n {
			txn := storage.Txn{Ops: []storage.Op{storage.Put("/a", randomBytes(size, uint64(i)))}}
			var err error
			if revision, err = s.Commit(t.Context(), txn); err != nil {
				t.Fatal(err)
			}
			clocks.pass(time.Minute)
			s.compactor.compactWindow(t.Context())
		}
		return revision
	}
	// missing returns how many of the changes after a revision the store does not have.
	missing := func(after int64) int64 {
		t.Helper()
		result, err := s.Changes(t.Context(), storage.ChangesRequest{After: after})
		if err != nil {
			t.Fatal(err)
		}
		if n := result.Through - after - int64(len(result.Changes)); n > 0 || s.Floor(storage.Scope{}) > after {
			return max(n, s.Floor(storage.Scope{})-after)
		}
		return 0
	}
	first := write(5, 100)
	if missing(first-4) == 0 {
		t.Error("changes stay beyond the window though nothing is held")
	}
	s.Hold(first, s.Stats().WrittenBytes)
	write(20, 100)
	if n := missing(first); n != 0 {
		t.Errorf("%d changes that are held are missing", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := OpenReader(testOptions(o))
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Verify(t.Context(), Checks{}, func(p Problem) { t.Errorf("the store is not in order: %v", p) })
	if err = errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, o)
	second := write(20, 100)
	if n := missing(first); n != 0 {
		t.Errorf("%d changes that are held are missing after a restart", n)
	}
	s.Hold(second, s.Stats().WrittenBytes)
	third := write(2, 100)
	if missing(first) == 0 || missing(second) != 0 {
		t.Error("a later revision is not the one after which changes are held")
	}
	write(60, 3000)
	if missing(third) == 0 {
		t.Error("more is held than there is space for")
	}
	s.Hold(third, 0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	o.Hold = false
	s = mustOpen(t, o)
	last := write(3, 100)
	if missing(last-2) == 0 {
		t.Errorf("changes after %d are held without the option", last-2)
	}
}
