package embedded

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage"
)

// TestRetentionWithAWrongClock sets the wall clock far ahead and back, or back and ahead. History that must be
// kept for a day is not given up at once, and is not kept until the wrong time is reached. Afterwards RevisionAt
// still finds the revisions of the right times.
func TestRetentionWithAWrongClock(t *testing.T) {
	const wrong = 10 * 365 * 24 * time.Hour
	for _, c := range []struct {
		name        string
		lasts       time.Duration
		givesUp     bool // whether the earlier history is given up
		ahead, back time.Duration
	}{
		{"ahead for half an hour", 30 * time.Minute, false, wrong, -wrong},
		{"ahead for three hours", 3 * time.Hour, true, wrong, -wrong},
		{"back for three hours", 3 * time.Hour, false, -wrong, wrong},
		{"an hour ahead", 30 * time.Minute, false, time.Hour, -time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			clocks := newTwoClocks()
			s := mustOpen(t, Options{
				Dir: "d", FS: vfs.NewMem(), Clock: clocks.wall.now, Monotonic: clocks.monotonic, HistoryWindow: time.Minute,
				CompactInterval: time.Hour, SweepInterval: time.Hour, Retention: storage.Retention{Rules: []storage.RetentionRule{{Keep: 24 * time.Hour}}},
			})
			at := map[time.Time]int64{}
			write := func(lasts time.Duration, known bool) {
				for end := clocks.monotonic() + lasts; clocks.monotonic() < end; clocks.pass(10 * time.Minute) {
					revision := mustCommit(t, s, storage.Put("/a", []byte("v")))
					if known {
						at[clocks.wall.now()] = revision
					}
					s.compactor.compactWindow(s.lifetime.stopped)
				}
			}
			write(6*time.Hour, true)
			clocks.wall.advance(c.ahead)
			write(c.lasts, false)
			clocks.wall.advance(c.back)
			first := s.Floor(storage.Scope{})
			if givenUp := first > 2; givenUp != c.givesUp {
				t.Errorf("after the clock was wrong the floor is %d", first)
			}
			write(6*time.Hour, true)
			for written, want := range at {
				got, err := s.RevisionAt(t.Context(), storage.Scope{}, written)
				if want < s.Floor(storage.Scope{}) || c.ahead != wrong {
					continue // it is given up, or this time has occurred twice
				}
				if err != nil || got != want {
					t.Errorf("at %v: %d, want %d, %v", written, got, want, err)
				}
			}
			write(26*time.Hour, false)
			if last := s.hub.durable.Load(); s.Floor(storage.Scope{}) < last-26*6 {
				t.Errorf("a day later the floor is %d of %d", s.Floor(storage.Scope{}), last)
			}
		})
	}
}
