package storagetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/storage"
)

// wantEvent describes an expected event.
type wantEvent struct {
	key, value string
	deleted    bool
	mod        int64
	create     int64
	prev       string
	prevMod    int64
}

func (en *env) wantEvents(got []storage.Event, want ...wantEvent) {
	en.t.Helper()
	if len(got) != len(want) {
		en.t.Fatalf("%d events, want %d: %+v", len(got), len(want), got)
	}
	for i, e := range got {
		w := want[i]
		if e.Entry.Key != w.key || e.Deleted != w.deleted || e.Entry.ModRevision != w.mod ||
			string(e.Entry.Value) != w.value {
			en.t.Errorf("event %d is %+v, want %+v", i, e, w)
		}
		if !w.deleted && e.Entry.CreateRevision != w.create {
			en.t.Errorf("event %d: created at %d, want %d", i, e.Entry.CreateRevision, w.create)
		}
		if e.Prev.ModRevision != w.prevMod || string(e.Prev.Value) != w.prev {
			en.t.Errorf("event %d: previous %+v, want %q at %d", i, e.Prev, w.prev, w.prevMod)
		}
		if w.prevMod != 0 && (e.Prev.Key != w.key || e.Prev.CreateRevision == 0) {
			en.t.Errorf("event %d: previous %+v lacks its key or creation", i, e.Prev)
		}
	}
}

func (su *suite) watchEvents(t *testing.T) {
	k := su.env(t)
	k.put("/a/0", "early")
	w := k.watch("/a/", 0)
	other := k.watch("/b/", 0)
	all := k.watch("", 0)
	r1 := k.put("/a/1", "one")
	r2 := k.put("/b/1", "b")
	r3 := k.put("/a/1", "two")
	r4 := k.delete("/a/1")
	r5 := k.put("/a/1", "three")
	k.wantEvents(k.events(w, 4),
		wantEvent{key: "/a/1", value: "one", mod: r1, create: r1},
		wantEvent{key: "/a/1", value: "two", mod: r3, create: r1, prev: "one", prevMod: r1},
		wantEvent{key: "/a/1", deleted: true, mod: r4, prev: "two", prevMod: r3},
		wantEvent{key: "/a/1", value: "three", mod: r5, create: r5})
	k.wantEvents(k.events(other, 1), wantEvent{key: "/b/1", value: "b", mod: r2, create: r2})
	if n := len(k.events(all, 5)); n != 5 {
		t.Errorf("%d events", n)
	}
}

func (su *suite) watchFromHistory(t *testing.T) {
	k := su.env(t)
	r1 := k.put("/a/1", "one")
	k.put("/b", "x")
	r3 := k.put("/a/1", "two")
	r4 := k.delete("/a/1")
	want := []wantEvent{
		{key: "/a/1", value: "one", mod: r1, create: r1},
		{key: "/a/1", value: "two", mod: r3, create: r1, prev: "one", prevMod: r1},
		{key: "/a/1", deleted: true, mod: r4, prev: "two", prevMod: r3},
	}
	k.wantEvents(k.eventsUntil(k.watch("/a/", 1), r4), want...)
	k.wantEvents(k.eventsUntil(k.watch("/a/", r1), r4), want...)
	k.wantEvents(k.eventsUntil(k.watch("/a/", r1+1), r4), want[1:]...)
	k.wantEvents(k.eventsUntil(k.watch("/a/", r4), r4), want[2:]...)
	w := k.watch("/a/", r4+1)
	r5 := k.put("/a/2", "live")
	k.wantEvents(k.events(w, 1), wantEvent{key: "/a/2", value: "live", mod: r5, create: r5})
}

func (su *suite) watchFuture(t *testing.T) {
	k := su.env(t)
	r := k.revision()
	w := k.watch("/", r+3)
	k.put("/1", "")
	k.put("/2", "")
	r3 := k.put("/3", "three")
	k.wantEvents(k.events(w, 1), wantEvent{key: "/3", value: "three", mod: r3, create: r3})
}

// watchProgress checks that a watcher without matching changes advances to the current revision after a call of
// Revision.
func (su *suite) watchProgress(t *testing.T) {
	k := su.env(t)
	w := k.watch("/a/", 0)
	var r int64
	for i := range 10 {
		r = k.put("/b/", fmt.Sprint(i))
	}
	if got := k.revision(); got != r {
		t.Fatalf("Revision %d, want %d", got, r)
	}
	if events := k.eventsUntil(w, r); len(events) != 0 {
		t.Errorf("events that do not match: %+v", events)
	}
	r = k.put("/a/1", "x")
	k.wantEvents(k.events(w, 1), wantEvent{key: "/a/1", value: "x", mod: r, create: r})
}

func (su *suite) watchCompacted(t *testing.T) {
	k := su.env(t)
	r1 := k.put("/a", "1")
	r2 := k.put("/a", "2")
	r3 := k.put("/a", "3")
	if err := k.s.Compact(k.ctx, r2); err != nil {
		t.Fatal(err)
	}
	var compacted *storage.CompactedError
	for _, from := range []int64{1, r1, r2} {
		w, err := k.s.Watch(k.ctx, "/", from)
		if err == nil {
			_, err = w.Next(k.ctx)
			w.Close()
		}
		if !errors.As(err, &compacted) || compacted.Compacted != r2 {
			t.Errorf("Watch from %d: %v", from, err)
		}
	}
	// The event just above the compaction revision still has the previous value.
	k.wantEvents(
		k.events(k.watch("/", r3), 1), wantEvent{key: "/a", value: "3", mod: r3, create: r1, prev: "2", prevMod: r2},
	)
}

func (su *suite) watchCancel(t *testing.T) {
	k := su.env(t)
	w := k.watch("/", 0)
	ctx, cancel := context.WithCancel(k.ctx)
	ended := make(chan error)
	go func() {
		_, err := w.Next(ctx)
		ended <- err
	}()
	cancel()
	if err := wait.Receive(k.t, "Next to end", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Next with a cancelled context: %v", err)
	}

	w = k.watch("/", 0)
	go func() {
		_, err := w.Next(k.ctx)
		ended <- err
	}()
	if err := w.Close(); err != nil {
		t.Errorf("closing a Watcher: %v", err)
	}
	if err := wait.Receive(k.t, "Next to end", ended); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Next of a closed Watcher: %v", err)
	}
	if _, err := w.Next(k.ctx); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Next after that: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("closing a Watcher twice: %v", err)
	}
	k.put("/a", "the store goes on")
}

// watchSlow runs watchers with several speeds and prefixes during concurrent writes. Each must deliver exactly the
// matching changes.
func (su *suite) watchSlow(t *testing.T) {
	k := su.env(t)
	const writers, writes = 4, 100
	from := k.revision() + 1
	prefixes := []string{"", "/", "/k/", "/k/1", "/k/1/7", "/none/"}
	var watchers []storage.Watcher
	for _, p := range prefixes {
		watchers = append(watchers, k.watch(p, from), k.watch(p, 0))
	}
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for n := range writes {
				key := fmt.Sprintf("/k/%d/%d", i, n%10)
				txn := storage.Txn{Ops: []storage.Op{storage.Put(key, fmt.Append(nil, n))}}
				if n%7 == 6 {
					txn.Ops[0] = storage.Delete(key)
				}
				if _, err := k.s.Commit(k.ctx, txn); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var read sync.WaitGroup
	var target atomic.Int64 // set after the last write
	written := make(chan struct{})
	got := make([][]storage.Event, len(watchers))
	for i, w := range watchers {
		read.Go(func() {
			if i%4 == 1 {
				<-written // this watcher reads nothing before the writes have ended
			}
			for {
				b, err := w.Next(k.ctx)
				if err != nil {
					t.Errorf("Next: %v", err)
					return
				}
				got[i] = append(got[i], b.Events...)
				if end := target.Load(); end != 0 && b.Revision >= end {
					return
				}
			}
		})
	}
	wg.Wait()
	end := k.revision()
	target.Store(end)
	close(written)
	k.put("~", "so that a watcher that was done before moves once more")
	all := k.eventsUntil(k.watch("", from), end)
	ended := make(chan struct{})
	go func() { read.Wait(); close(ended) }()
	wait.Until(k.t, "all watchers to reach the end", func() bool {
		k.revision() // makes the store send progress
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	for i := range watchers {
		want := upTo(matchingEvents(all, prefixes[i/2]), end)
		events := upTo(got[i], end)
		if len(want) != len(events) {
			t.Fatalf("prefix %q: %d events, want %d", prefixes[i/2], len(events), len(want))
		}
		for j, e := range events {
			if fmt.Sprint(e) != fmt.Sprint(want[j]) {
				t.Fatalf("prefix %q, event %d: %+v, want %+v", prefixes[i/2], j, e, want[j])
			}
		}
	}
}

func upTo(events []storage.Event, revision int64) []storage.Event {
	n := len(events)
	for n > 0 && events[n-1].Entry.ModRevision > revision {
		n--
	}
	return events[:n]
}

func matchingEvents(events []storage.Event, prefix string) []storage.Event {
	var out []storage.Event
	for _, e := range events {
		if len(e.Entry.Key) >= len(prefix) && e.Entry.Key[:len(prefix)] == prefix {
			out = append(out, e)
		}
	}
	return out
}
