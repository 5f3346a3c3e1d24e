// Package chaos proves the store's guarantees while it is killed and while the
// disk loses what was not synced.
package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/storage"
	"github.com/keelson-dev/keelson/storage/embedded"
)

// note is one change that somebody was told of.
type note struct {
	revision int64
	key      string
	value    string // "" and deleted for a deletion
	deleted  bool
}

func (n note) String() string {
	return fmt.Sprintf("%d %s %s %t", n.revision, n.key, n.value, n.deleted)
}

// ledger collects what the outside world knows. It outlives the stores.
type ledger struct {
	mu    sync.Mutex
	notes map[int64]note
	total int   // notes, with those that were forgotten
	floor int64 // notes up to it were forgotten
}

func newLedger() *ledger { return &ledger{notes: map[int64]note{}} }

// add takes a note; a revision told twice must be the same change.
func (l *ledger) add(n note) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, ok := l.notes[n.revision]; ok && before != n {
		return fmt.Errorf("revision %d stands for two changes: %v and %v", n.revision, before, n)
	}
	if _, ok := l.notes[n.revision]; !ok && n.revision > l.floor {
		l.notes[n.revision] = n
		l.total++
	}
	return nil
}

// forget drops what was verified and has been compacted since, so that many rounds
// do not take ever longer. The last note stays: revisions may not go back.
func (l *ledger) forget(compacted int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := int64(0)
	for r := range l.notes {
		last = max(last, r)
	}
	l.floor = max(l.floor, min(compacted, last-1))
	for r := range l.notes {
		if r <= l.floor {
			delete(l.notes, r)
		}
	}
}

// size is how many changes were told so far.
func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

func (l *ledger) copy() map[int64]note {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[int64]note, len(l.notes))
	for r, n := range l.notes {
		out[r] = n
	}
	return out
}

// verify proves that s holds every note, at its revision, that its history is
// whole and that its state is what its history leads to. All transactions have one
// operation, so a revision is one change.
func verify(t *testing.T, s storage.Store, notes map[int64]note) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	current, err := s.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	history, state := replay(ctx, t, s, current)
	compacted := s.Stats().CompactedRevision
	for r, n := range notes {
		switch {
		case r > current:
			t.Errorf("lost: %v; the store is at revision %d", n, current)
		case r > compacted && history[r] != n:
			t.Errorf("lost: %v; the store has %v", n, history[r])
		}
	}
	// All at one revision: keys expire meanwhile.
	result, err := s.Range(ctx, storage.RangeRequest{Revision: current})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Entries) != len(state) {
		t.Errorf("%d keys, history leads to %d", len(result.Entries), len(state))
	}
	for _, e := range result.Entries {
		if want := state[e.Key]; !same(e, want) {
			t.Errorf("state has %v, history leads to %v", e, want)
		}
		if got, _, err := s.Get(ctx, e.Key, current); err != nil || !same(got, e) {
			t.Errorf("Get has %v, %v; Range has %v", got, err, e)
		}
	}
}

func same(a, b storage.Entry) bool {
	return a.Key == b.Key && a.ModRevision == b.ModRevision && a.CreateRevision == b.CreateRevision &&
		bytes.Equal(a.Value, b.Value)
}

// replay reads the whole history up to a revision, and checks that each event
// continues the one before.
func replay(
	ctx context.Context, t *testing.T, s storage.Store, current int64,
) (map[int64]note, map[string]storage.Entry) {
	t.Helper()
	base := max(s.Stats().CompactedRevision, 1)
	start, err := s.Range(ctx, storage.RangeRequest{Revision: base})
	if err != nil {
		t.Fatal(err)
	}
	state := map[string]storage.Entry{}
	for _, e := range start.Entries {
		state[e.Key] = e
	}
	history := map[int64]note{}
	if base == current {
		return history, state
	}
	w, err := s.Watch(ctx, "", base+1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	next := base + 1
	for through := base; through < current; {
		b, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		through = b.Revision
		for _, e := range b.Events {
			r := e.Entry.ModRevision
			if r > current {
				break // a key expired meanwhile
			}
			if r != next {
				t.Fatalf("history goes from revision %d to %d", next-1, r)
			}
			next++
			if !same(e.Prev, state[e.Entry.Key]) {
				t.Errorf("event at %d has previous %v, want %v", r, e.Prev, state[e.Entry.Key])
			}
			history[r] = noteOf(e)
			if e.Deleted {
				delete(state, e.Entry.Key)
			} else {
				state[e.Entry.Key] = e.Entry
			}
		}
	}
	if next <= current {
		t.Fatalf("history ends at revision %d, the store is at %d", next-1, current)
	}
	return history, state
}

func noteOf(e storage.Event) note {
	return note{revision: e.Entry.ModRevision, key: e.Entry.Key, value: string(e.Entry.Value), deleted: e.Deleted}
}

// write makes changes to the keys of one writer until it fails, and tells each
// that was acknowledged.
func write(ctx context.Context, s storage.Store, writer int, tell func(note)) error {
	for n := 0; ; n++ {
		key := fmt.Sprintf("/w%d/%d", writer, n%17)
		op := storage.Put(key, fmt.Appendf(nil, "%d-%d-%d", writer, n, time.Now().UnixNano()))
		switch n % 11 {
		case 5:
			op = storage.Delete(key)
		case 7:
			op.TTL = 1
		case 9:
			op.Value = append(op.Value, bytes.Repeat([]byte("+"), 4000)...)
		}
		r, err := s.Commit(ctx, storage.Txn{Ops: []storage.Op{op}})
		if err != nil {
			return err
		}
		if op.Delete {
			// It changed nothing if the key was not there, and then r is somebody
			// else's; what it did, the watcher tells.
			continue
		}
		tell(note{revision: r, key: key, value: string(op.Value)})
	}
}

// watch tells every event from revision from on.
func watch(ctx context.Context, s storage.Store, from int64, tell func(note)) error {
	w, err := s.Watch(ctx, "", from)
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		b, err := w.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range b.Events {
			tell(noteOf(e))
		}
	}
}

func options(o embedded.Options) embedded.Options {
	o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	o.SweepInterval = 20 * time.Millisecond
	o.MemTableBytes = 256 << 10 // flushes and compacts
	if o.HistoryWindow == 0 {
		o.HistoryWindow = -1
	}
	return o
}
