// Package chaos tests the guarantees of the store while its process is killed, and while the disk loses data that was
// not synced.
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

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// knownChange is one change that a writer or watcher knows of.
type knownChange struct {
	revision int64
	key      string
	value    string // "" with deleted set for a deletion
	deleted  bool
}

func (c knownChange) String() string {
	return fmt.Sprintf("%d %s %s %t", c.revision, c.key, c.value, c.deleted)
}

// acknowledgedChanges collects all changes that writers and watchers know of. It is used for many stores on the same
// data, one after the other.
type acknowledgedChanges struct {
	mu      sync.Mutex
	changes map[int64]knownChange
	total   int   // the number of changes, including forgotten ones
	floor   int64 // changes up to this revision were forgotten
}

func newAcknowledgedChanges() *acknowledgedChanges {
	return &acknowledgedChanges{changes: map[int64]knownChange{}}
}

// add records a change. If a revision is recorded twice, it must be the same change.
func (c *acknowledgedChanges) add(n knownChange) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, ok := c.changes[n.revision]; ok && before != n {
		return fmt.Errorf("revision %d stands for two changes: %v and %v", n.revision, before, n)
	}
	if _, ok := c.changes[n.revision]; !ok && n.revision > c.floor {
		c.changes[n.revision] = n
		c.total++
	}
	return nil
}

// forget drops changes that were verified and are compacted now, so that rounds do not take longer and longer. It keeps
// the last change, because revisions must not go back.
func (c *acknowledgedChanges) forget(compacted int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := int64(0)
	for r := range c.changes {
		last = max(last, r)
	}
	c.floor = max(c.floor, min(compacted, last-1))
	for r := range c.changes {
		if r <= c.floor {
			delete(c.changes, r)
		}
	}
}

// size returns the number of recorded changes.
func (c *acknowledgedChanges) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

func (c *acknowledgedChanges) copy() map[int64]knownChange {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[int64]knownChange, len(c.changes))
	for r, n := range c.changes {
		out[r] = n
	}
	return out
}

// verify checks that s has every change at its revision, that its history has no gaps, and that its state is the result
// of its history. Every transaction has one operation, so a revision is one change.
func verify(t *testing.T, s storage.Store, changes map[int64]knownChange) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	current, err := s.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	history, state := replay(ctx, t, s, current)
	compacted, floor := s.Stats().CompactedRevision, floorOf(s)
	for r, n := range changes {
		if r > floor && r <= compacted {
			verifyPast(ctx, t, s, n)
		}
		switch {
		case r > current:
			t.Errorf("lost: %v; the store is at revision %d", n, current)
		case r > compacted && history[r] != n:
			t.Errorf("lost: %v; the store has %v", n, history[r])
		}
	}
	// All reads are at one revision, because keys may expire in the meantime.
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

// floorOf returns the lowest revision of which the store keeps everything.
func floorOf(s storage.Store) int64 {
	if past, ok := s.(storage.History); ok {
		return past.Floor(storage.Scope{})
	}
	return s.Stats().CompactedRevision
}

// verifyPast checks that a change can be read that the store has compacted, but still keeps.
func verifyPast(ctx context.Context, t *testing.T, s storage.Store, n knownChange) {
	t.Helper()
	e, err := s.(storage.History).GetAt(ctx, storage.Scope{}, n.key, n.revision)
	if err != nil || e.ModRevision != n.revision && !n.deleted || string(e.Value) != n.value {
		t.Errorf("lost in the past: %v; the store has %v, %v", n, e, err)
	}
}

func same(a, b storage.Entry) bool {
	return a.Key == b.Key && a.ModRevision == b.ModRevision && a.CreateRevision == b.CreateRevision &&
		bytes.Equal(a.Value, b.Value)
}

// replay reads the whole history up to a revision, and checks that each event begins with the state after the previous
// one.
func replay(
	ctx context.Context, t *testing.T, s storage.Store, current int64,
) (map[int64]knownChange, map[string]storage.Entry) {
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
	history := map[int64]knownChange{}
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
				break // a key has expired in the meantime
			}
			if r != next {
				t.Fatalf("history goes from revision %d to %d", next-1, r)
			}
			next++
			if !same(e.Prev, state[e.Entry.Key]) {
				t.Errorf("event at %d has previous %v, want %v", r, e.Prev, state[e.Entry.Key])
			}
			history[r] = knownChangeOf(e)
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

func knownChangeOf(e storage.Event) knownChange {
	return knownChange{revision: e.Entry.ModRevision, key: e.Entry.Key, value: string(e.Entry.Value), deleted: e.Deleted}
}

// write changes the keys of one writer until an error occurs. It calls record for each acknowledged change.
func write(ctx context.Context, s storage.Store, writer int, record func(knownChange)) error {
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
			// A deletion of a missing key changes nothing, and then r is the revision of another change. The watcher
			// reports the deletions that have changed something.
			continue
		}
		record(knownChange{revision: r, key: key, value: string(op.Value)})
	}
}

// watch calls record for every event from revision from on.
func watch(ctx context.Context, s storage.Store, from int64, record func(knownChange)) error {
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
			record(knownChangeOf(e))
		}
	}
}

func options(o embedded.Options) embedded.Options {
	o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	o.SweepInterval = 20 * time.Millisecond
	o.MemTableBytes = 256 << 10 // small, so that the engine flushes and compacts often
	if o.HistoryWindow == 0 {
		o.HistoryWindow = -1
	}
	// What was compacted is kept until there is too much of it.
	o.Retention = storage.Retention{Rules: []storage.RetentionRule{{Keep: 24 * time.Hour}}, Bytes: 4 << 20}
	return o
}
