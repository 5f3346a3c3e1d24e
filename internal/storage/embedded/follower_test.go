package embedded

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/changelog"
)

// eventsThrough reads a watch up to a revision.
func eventsThrough(t *testing.T, w storage.Watcher, revision int64) (events []storage.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		b, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("waiting for revision %d: %v", revision, err)
		}
		if events = append(events, b.Events...); b.Revision >= revision {
			return events
		}
	}
}

// TestFollowerReads compares what readers and watchers of a Follower see with what the store that it follows shows: after each step, at old
// revisions, and watched from the beginning, from the middle, and across revisions that were left out.
func TestFollowerReads(t *testing.T) {
	for range effort.Rounds(40, 8) {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) { testFollowerReads(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func testFollowerReads(t *testing.T, rng *rand.Rand) {
	s := mustOpen(t, Options{InMemory: true, HistoryWindow: -1})
	randomCommits(t, s, rng, 5)
	e, err := s.Export(t.Context())
	image, _ := exported(t, e, err, 0)
	from := e.Revision()
	// A small ring makes watchers read the log.
	o := testOptions(Options{Dir: t.TempDir(), RingBytes: 1 + rng.IntN(100_000)})
	if err := Import(o, from, all(image), nil); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFollower(o)
	if err != nil {
		t.Fatal(err)
	}
	r := f.Reads()
	const prefix = "/k0"
	early, err := r.Watch(t.Context(), prefix, from+1)
	if err != nil {
		t.Fatal(err)
	}
	last, gap := from, int64(0) // the follower has the revisions of s, from some moment on with a gap
	for range 1 + rng.IntN(4) {
		randomCommits(t, s, rng, 1+rng.IntN(40))
		result, err := s.Changes(t.Context(), storage.ChangesRequest{After: last})
		if err != nil {
			t.Fatal(err)
		}
		var list []changelog.Transaction
		for _, x := range changelog.Transactions(result.Changes) {
			x.Revision += gap
			list = append(list, x)
		}
		if err := f.Apply(t.Context(), all(list)); err != nil {
			t.Fatal(err)
		}
		last = result.Through
		want, err := s.Range(t.Context(), storage.RangeRequest{Start: prefix})
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Range(t.Context(), storage.RangeRequest{Start: prefix})
		if err != nil || got.Revision != last+gap || !reflect.DeepEqual(texts(got), texts(want)) {
			t.Fatalf("read at %d: %v\n%q\nwant\n%q", got.Revision, err, texts(got), texts(want))
		}
		if revision, err := r.Revision(t.Context()); err != nil || revision != last+gap || r.Stats().Revision != revision {
			t.Errorf("revision %d, %v; want %d", revision, err, last+gap)
		}
		if gap == 0 && rng.IntN(2) == 0 {
			compareAt(t, s, r, from+rng.Int64N(last-from+1))
		}
		if rng.IntN(3) == 0 {
			gap += 1_000_000_000
		}
	}
	late, err := r.Watch(t.Context(), prefix, from+1)
	if err != nil {
		t.Fatal(err)
	}
	source, err := s.Watch(t.Context(), prefix, from+1)
	if err != nil {
		t.Fatal(err)
	}
	want := eventTexts(eventsThrough(t, source, last))
	end := r.Stats().Revision
	for name, w := range map[string]storage.Watcher{"early": early, "late": late} {
		if got := eventTexts(eventsThrough(t, w, end)); !reflect.DeepEqual(got, want) {
			t.Errorf("the %s watch: %d events\n%q\nwant %d\n%q", name, len(got), got, len(want), want)
		}
	}
	if _, err := r.Commit(t.Context(), storage.Txn{Ops: []storage.Op{storage.Put("/a", nil)}}); !errors.Is(err, storage.ErrReadOnly) {
		t.Errorf("a write: %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := late.Next(t.Context())
		ended <- err
	}()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, storage.ErrClosed) {
		t.Errorf("the watch ended with %v", err)
	}
	if _, err := r.Range(t.Context(), storage.RangeRequest{}); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("a read after the end: %v", err)
	}
}

// compareAt compares two stores at an old revision.
func compareAt(t *testing.T, a, b storage.Store, revision int64) {
	t.Helper()
	request := storage.RangeRequest{Revision: revision}
	want, err := a.Range(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.Range(t.Context(), request); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("at %d: %v\n%q\nwant\n%q", revision, err, texts(got), texts(want))
	}
}

// texts returns the keys and values of a result, whose revisions differ after a gap.
func texts(r storage.RangeResult) (out []string) {
	for _, e := range r.Entries {
		out = append(out, e.Key+" "+string(e.Value))
	}
	return out
}

func eventTexts(events []storage.Event) (out []string) {
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s %x %v, before %x", e.Entry.Key, e.Entry.Value, e.Deleted, e.Prev.Value))
	}
	return out
}

// TestFollowerIsCompacted changes a key for longer than the window: the follower does not keep all versions, and closes and goes on.
func TestFollowerIsCompacted(t *testing.T) {
	clocks := newTwoClocks()
	o := testOptions(Options{
		Dir: t.TempDir(), Clock: clocks.wall.now, Monotonic: clocks.monotonic, HistoryWindow: time.Minute, CompactInterval: time.Hour,
	})
	if err := Import(o, 10, all([]Record{}), nil); err != nil {
		t.Fatal(err)
	}
	revision := int64(10)
	for range 2 {
		f, err := OpenFollower(o)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			revision++
			put := changelog.Transaction{Revision: revision, Operations: []changelog.Operation{{Key: "/a", Value: []byte("x")}}}
			if err := f.Apply(t.Context(), all([]changelog.Transaction{put})); err != nil {
				t.Fatal(err)
			}
			clocks.pass(time.Minute)
			f.s.compactor.compactWindow(t.Context())
		}
		if got := f.Reads().Stats(); got.Revision != revision || got.CompactedRevision < revision-2 {
			t.Errorf("at revision %d the store is compacted up to %d", got.Revision, got.CompactedRevision)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, o)
	if e, at, err := s.Get(t.Context(), "/a", 0); err != nil || e.ModRevision != revision || at != revision {
		t.Errorf("as an ordinary store: %v at %d, %v", e, at, err)
	}
}
