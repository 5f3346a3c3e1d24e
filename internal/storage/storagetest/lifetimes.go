package storagetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/storage"
)

func (en *env) putTTL(key, value string, ttl int64) int64 {
	en.t.Helper()
	op := storage.Put(key, []byte(value))
	op.TTL = ttl
	return en.commit(storage.Txn{Ops: []storage.Op{op}})
}

func (su *suite) timeToLive(t *testing.T) {
	k := su.env(t)
	w := k.watch("/", 0)
	before := time.Now()
	r1 := k.putTTL("/a", "short", 1)
	r2 := k.put("/b", "stays")
	events := k.events(w, 3)
	if lived := time.Since(before); lived < time.Second {
		t.Errorf("lived for %v, less than its time to live", lived)
	}
	r3 := events[2].Entry.ModRevision
	k.wantEvents(events,
		wantEvent{key: "/a", value: "short", mod: r1, create: r1},
		wantEvent{key: "/b", value: "stays", mod: r2, create: r2},
		wantEvent{key: "/a", deleted: true, mod: r3, prev: "short", prevMod: r1})
	if r3 <= r2 {
		t.Errorf("expired at revision %d, before %d", r3, r2)
	}
	if e := k.get("/a", 0); e.ModRevision != 0 {
		t.Errorf("expired, but there: %+v", e)
	}
	k.wantEntry(k.get("/a", r2), "/a", "short", r1, r1)
}

// timeToLiveReplaced checks that a later put or delete cancels the deadline.
func (su *suite) timeToLiveReplaced(t *testing.T) {
	k := su.env(t)
	k.putTTL("/keep", "1", 1)
	k.putTTL("/longer", "1", 1)
	k.putTTL("/again", "1", 1)
	r1 := k.put("/keep", "2")
	r2 := k.putTTL("/longer", "2", 3600)
	k.delete("/again")
	r3 := k.put("/again", "2")
	k.putTTL("/end", "1", 2) // expires after the deadlines that were replaced
	wait.Until(k.t, "/end to expire", func() bool { return k.get("/end", 0).ModRevision == 0 })
	for key, r := range map[string]int64{"/keep": r1, "/longer": r2, "/again": r3} {
		if e := k.get(key, 0); e.ModRevision != r {
			t.Errorf("%s: %+v, want it at %d", key, e, r)
		}
	}
}

// compactionRace compacts while readers and watchers run. Their answers must be right or a *CompactedError.
func (su *suite) compactionRace(t *testing.T) {
	k := su.env(t)
	const writes, keys = 400, 5
	key := func(i int) string { return fmt.Sprintf("/k/%d", i%keys) }
	// The write with number i is at revision first+i.
	first := k.put(key(0), "0")
	var wg sync.WaitGroup
	ctx, done := context.WithCancel(k.ctx) // ends after the last write
	defer done()
	wg.Go(func() {
		defer done()
		for i := 1; i < writes; i++ {
			if _, err := k.s.Commit(k.ctx, storage.Txn{Ops: []storage.Op{storage.Put(key(i), fmt.Append(nil, i))}}); err != nil {
				t.Error(err)
				return
			}
			if i%20 == 0 {
				if err := k.s.Compact(k.ctx, first+int64(i)-5); err != nil {
					t.Errorf("Compact: %v", err)
				}
			}
		}
	})
	for range 2 {
		wg.Go(func() { k.readDuringCompaction(ctx, first, keys) })
		wg.Go(func() { k.watchDuringCompaction(ctx, first, keys) })
	}
	wg.Wait()
}

// readDuringCompaction reads at revisions near the compaction until ctx ends. The write of number i is at revision
// first+i, and changes key i modulo keys.
func (en *env) readDuringCompaction(ctx context.Context, first, keys int64) {
	for n := int64(0); ctx.Err() == nil; n++ {
		at := max(en.s.Stats().Revision-n%30, first+keys)
		r, err := en.s.Range(en.ctx, storage.RangeRequest{Start: "/k/", End: "/k0", Revision: at})
		if isRevisionError(err) {
			continue
		}
		if err != nil || int64(len(r.Entries)) != keys || r.Count != keys {
			en.t.Errorf("Range at %d: %+v, %v", at, r, err)
			return
		}
		for _, e := range r.Entries {
			if want := fmt.Sprint(e.ModRevision - first); string(e.Value) != want || e.ModRevision > at ||
				e.ModRevision <= at-keys {
				en.t.Errorf("at %d: %+v, want value %s", at, e, want)
			}
		}
	}
}

// watchDuringCompaction watches until ctx ends. It starts again and again at an earlier revision. See
// readDuringCompaction for first and keys.
func (en *env) watchDuringCompaction(ctx context.Context, first, keys int64) {
	for ctx.Err() == nil {
		from := max(en.s.Stats().Revision-15, first)
		w, err := en.s.Watch(en.ctx, "/k/", from)
		if isRevisionError(err) {
			continue
		}
		for next := from; err == nil && next < from+20 && ctx.Err() == nil; {
			var b storage.Batch
			if b, err = w.Next(ctx); err != nil {
				break
			}
			for _, e := range b.Events {
				if e.Entry.ModRevision != next || string(e.Entry.Value) != fmt.Sprint(next-first) {
					en.t.Errorf("event %+v, want revision %d", e.Entry, next)
				}
				if prev := max(next-keys, 0); next >= first+keys && e.Prev.ModRevision != prev {
					en.t.Errorf("event at %d has previous %d, want %d", next, e.Prev.ModRevision, prev)
				}
				next++
			}
		}
		if err != nil && !isRevisionError(err) && ctx.Err() == nil {
			en.t.Errorf("watch: %v", err)
		}
		if w != nil {
			w.Close()
		}
	}
}

// isRevisionError reports whether err can be caused by compaction, or by a read at a revision that is not written yet.
func isRevisionError(err error) bool {
	var compacted *storage.CompactedError
	var future *storage.FutureRevisionError
	return errors.As(err, &compacted) || errors.As(err, &future)
}

func (su *suite) close(t *testing.T) {
	k := su.env(t)
	k.put("/a", "1")
	w, _ := k.s.Watch(k.ctx, "/", 0)
	ended := make(chan error, 1)
	go func() {
		_, err := w.Next(k.ctx)
		ended <- err
	}()
	var wg sync.WaitGroup
	started := make(chan struct{}, 4)
	for i := range 4 {
		wg.Go(func() { // commits until the store is closed
			for n := 0; ; n++ {
				_, err := k.s.Commit(
					k.ctx, storage.Txn{Ops: []storage.Op{storage.Put(fmt.Sprintf("/x/%d", i), fmt.Append(nil, n))}},
				)
				if n == 0 {
					started <- struct{}{}
				}
				if err != nil {
					if !errors.Is(err, storage.ErrClosed) {
						t.Errorf("Commit while closing: %v", err)
					}
					return
				}
			}
		})
	}
	for range 4 {
		wait.Receive(k.t, "a writer to start", started)
	}
	wait.Receive(k.t, "Next to end", ended) // a commit has woken it
	go func() {
		var err error
		for err == nil {
			_, err = w.Next(k.ctx)
		}
		ended <- err
	}()
	if err := k.s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	wg.Wait()
	if err := wait.Receive(k.t, "Next to end", ended); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Next: %v", err)
	}
	if err := k.s.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	_, _, getErr := k.s.Get(k.ctx, "/a", 0)
	_, rangeErr := k.s.Range(k.ctx, storage.RangeRequest{})
	_, commitErr := k.s.Commit(k.ctx, storage.Txn{Ops: []storage.Op{storage.Put("/a", nil)}})
	_, watchErr := k.s.Watch(k.ctx, "/", 0)
	_, revisionErr := k.s.Revision(k.ctx)
	for name, err := range map[string]error{
		"Get": getErr, "Range": rangeErr, "Commit": commitErr, "Watch": watchErr, "Revision": revisionErr,
		"Compact": k.s.Compact(k.ctx, 1),
	} {
		if !errors.Is(err, storage.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	k.s.Stats()
}

func (su *suite) reopenKeeps(t *testing.T) {
	if su.reopen == nil {
		t.Skip("the store does not outlive Close")
	}
	k := su.env(t)
	r1 := k.put("/a", "1")
	r2 := k.put("/a", "2")
	r3 := k.delete("/a")
	r4 := k.put("/b", "b")
	k.s = su.reopen(t, k.s)
	if r := k.revision(); r != r4 {
		t.Errorf("revision %d after reopening, want %d", r, r4)
	}
	k.wantEntry(k.get("/b", 0), "/b", "b", r4, r4)
	k.wantEntry(k.get("/a", r1), "/a", "1", r1, r1)
	k.wantEvents(k.eventsUntil(k.watch("/", r1), r4),
		wantEvent{key: "/a", value: "1", mod: r1, create: r1},
		wantEvent{key: "/a", value: "2", mod: r2, create: r1, prev: "1", prevMod: r1},
		wantEvent{key: "/a", deleted: true, mod: r3, prev: "2", prevMod: r2},
		wantEvent{key: "/b", value: "b", mod: r4, create: r4})
	// The revision must not decrease even if all of the history is compacted.
	if err := k.s.Compact(k.ctx, r4); err != nil {
		t.Fatal(err)
	}
	k.s = su.reopen(t, k.s)
	if r := k.put("/c", "c"); r != r4+1 {
		t.Errorf("revision %d after reopening, want %d", r, r4+1)
	}
	var compacted *storage.CompactedError
	if _, _, err := k.s.Get(k.ctx, "/a", r1); !errors.As(err, &compacted) {
		t.Errorf("Get of what was compacted before: %v", err)
	}
	k.wantEntry(k.get("/b", r4), "/b", "b", r4, r4)
}

func (su *suite) reopenTimeToLive(t *testing.T) {
	if su.reopen == nil {
		t.Skip("the store does not outlive Close")
	}
	k := su.env(t)
	k.putTTL("/short", "1", 1)
	r := k.putTTL("/long", "1", 3600)
	k.s = su.reopen(t, k.s)
	wait.Until(k.t, "/short to expire", func() bool { return k.get("/short", 0).ModRevision == 0 })
	k.wantEntry(k.get("/long", 0), "/long", "1", r, r)
}
