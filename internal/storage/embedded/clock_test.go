package embedded

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage"
)

// twoClocks contains a wall clock that tests can set, and a clock of the time that really passes.
type twoClocks struct{ wall, real fakeClock }

func newTwoClocks() *twoClocks {
	c := &twoClocks{}
	c.wall.ms.Store(1.7e12)
	return c
}

func (c *twoClocks) pass(d time.Duration) {
	c.wall.advance(d)
	c.real.advance(d)
}

func (c *twoClocks) monotonic() time.Duration {
	return time.Duration(c.real.ms.Load()) * time.Millisecond
}

// TestStoreClock takes random steps and restarts, and compares the clock with the sum of the steps.
func TestStoreClock(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		clocks := newTwoClocks()
		c := newStoreClock(clocks.wall.now, clocks.monotonic, nil)
		wantTime, wantUp := clocks.wall.ms.Load(), time.Duration(0)
		for range 50 {
			d := time.Duration(rng.Int64N(int64(time.Hour)) / 1e6 * 1e6)
			switch rng.IntN(4) {
			case 0, 1:
				clocks.pass(d)
				wantTime, wantUp = wantTime+d.Milliseconds(), wantUp+d
			case 2: // the wall clock is set
				clocks.wall.advance(d - 30*time.Minute)
			default: // the process is restarted; the monotonic clock starts at another value
				saved, err := decodeClock(c.snapshot().encode())
				if err != nil {
					t.Fatal(err)
				}
				if rng.IntN(2) == 0 {
					d = -d
				}
				clocks.wall.advance(d)
				clocks.real.ms.Store(rng.Int64N(1e6))
				c = newStoreClock(clocks.wall.now, clocks.monotonic, &saved)
				wantTime += min(max(d, 0), maxStoppedCredit).Milliseconds()
			}
			if got := c.now(); got != wantTime {
				t.Fatalf("store time %d, want %d", got, wantTime)
			}
			if got := c.readUptime(); got != wantUp {
				t.Fatalf("uptime %v, want %v", got, wantUp)
			}
		}
	}
}

// TestClockSetForward checks that times to live are measured by the time that really passes, although the wall
// clock is set, and that the change is logged.
func TestClockSetForward(t *testing.T) {
	clocks := newTwoClocks()
	log := &lockedBuffer{}
	o := Options{
		Dir: "d", FS: vfs.NewMem(), Clock: clocks.wall.now, Monotonic: clocks.monotonic, SweepInterval: time.Hour,
	}
	open := func() *Store {
		o := testOptions(o)
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := open()
	for i := range 100 {
		mustCommit(t, s, storage.Op{Key: fmt.Sprintf("/events/%d", i), TTL: 3600})
	}
	left := func() int64 {
		s.sweeper.sweep(s.lifetime.stopped)
		r, err := s.Range(t.Context(), storage.RangeRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Count
	}
	check := func(when string, want int64) {
		t.Helper()
		if got := left(); got != want {
			t.Errorf("%s: %d keys, want %d", when, got, want)
		}
	}
	clocks.pass(10 * time.Minute)
	clocks.wall.advance(24 * time.Hour)
	check("the clock was set forward by a day", 100)
	eventually(t, "the log says that the clock was set", func() bool {
		said := log.String()
		return strings.Contains(said, "the wall clock was set forward") && strings.Contains(said, "by=24h0m0s")
	})
	exported, err := s.Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range exported.Records(t.Context()) {
		// A snapshot may be restored on a machine with another store clock, so the remaining time to live must be
		// right by the wall clock.
		left := time.Duration(r.Deadline-clocks.wall.ms.Load()) * time.Millisecond
		if err != nil || left < 50*time.Minute || left > 50*time.Minute+time.Second {
			t.Errorf("%s is exported with %v left, %v", r.Key, left, err)
		}
	}
	if err := exported.Close(); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, s, storage.Op{Key: "/new", TTL: 60})
	clocks.pass(59 * time.Second)
	check("within the time to live of a new key", 101)
	clocks.pass(3 * time.Second)
	check("after it", 100)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	clocks.wall.advance(365 * 24 * time.Hour)
	s = open()
	check("the clock was set forward while the server was stopped", 100)
	if want := "stopped for long"; !strings.Contains(log.String(), want) {
		t.Errorf("the log does not say %q: %s", want, log.String())
	}
	clocks.pass(38 * time.Minute)
	check("with a minute left, stop included", 100)
	clocks.pass(2 * time.Minute)
	check("with the hour over, stop included", 0)
}

// lockedBuffer is a buffer that can be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestHistoryWindowAcrossProcesses checks that the history window is measured over several processes that each run
// for less than the window, and that changes of the wall clock between the processes neither shorten nor extend
// the window.
func TestHistoryWindowAcrossProcesses(t *testing.T) {
	for name, set := range map[string]time.Duration{
		"the wall clock goes on": time.Second, "it is set forward": 1000 * time.Hour, "it is set back": -1000 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			const window, life = time.Hour, 10 * time.Minute
			clocks := newTwoClocks()
			o := Options{
				Dir: "d", FS: vfs.NewMem(), Clock: clocks.wall.now, Monotonic: clocks.monotonic,
				HistoryWindow: window, CompactInterval: time.Hour, SweepInterval: time.Hour,
			}
			up := time.Duration(0)
			for process := range 9 {
				s, err := Open(testOptions(o))
				if err != nil {
					t.Fatal(err)
				}
				mustCommit(t, s, storage.Put("/a", []byte{byte(process)}))
				s.compactor.compactWindow(s.lifetime.stopped)
				clocks.pass(life)
				up += life
				s.compactor.compactWindow(s.lifetime.stopped)
				// The first change, at revision 2, was made when the uptime was 0.
				if got := s.Stats().CompactedRevision; got >= 2 && up < window {
					t.Errorf("compacted to %d after %v", got, up)
				} else if got < 2 && up > window+window/samplesPerWindow {
					t.Errorf("compacted to %d after %v", got, up)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				clocks.wall.advance(set)
			}
		})
	}
}
