// Package storagetest is the conformance suite of storage.Store: every backend
// passes it. It tests the contract as the interface states it, through the
// interface alone; what only one backend promises is tested beside that backend.
package storagetest

import (
	"context"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/storage"
)

// patience is how long a test waits for what must happen. It is not a
// measurement: a correct store never comes near it.
const patience = 30 * time.Second

// Option extends the suite for what a backend can do.
type Option func(*suite)

// WithReopen adds the tests of durability. reopen closes the store and opens it
// again on the same data.
func WithReopen(reopen func(t *testing.T, s storage.Store) storage.Store) Option {
	return func(c *suite) { c.reopen = reopen }
}

// randomSteps is the length of the random test.
const randomSteps = 1500

type suite struct {
	open   func(t *testing.T) storage.Store
	reopen func(t *testing.T, s storage.Store) storage.Store
}

// Run runs the suite. open returns a new, empty store and leaves closing it to
// t.Cleanup; tests may close it before.
func Run(t *testing.T, open func(t *testing.T) storage.Store, options ...Option) {
	c := &suite{open: open}
	for _, o := range options {
		o(c)
	}
	for _, test := range []struct {
		name string
		run  func(*suite, *testing.T)
	}{
		{"EmptyStore", (*suite).emptyStore},
		{"PutGetDelete", (*suite).putGetDelete},
		{"Conditions", (*suite).conditions},
		{"Transactions", (*suite).transactions},
		{"NoChange", (*suite).noChange},
		{"Range", (*suite).rangeSpans},
		{"RangeLimit", (*suite).rangeLimit},
		{"RangeOldRevision", (*suite).rangeOldRevision},
		{"Errors", (*suite).errors},
		{"Compact", (*suite).compact},
		{"WatchEvents", (*suite).watchEvents},
		{"WatchFromHistory", (*suite).watchFromHistory},
		{"WatchFuture", (*suite).watchFuture},
		{"WatchProgress", (*suite).watchProgress},
		{"WatchCompacted", (*suite).watchCompacted},
		{"WatchCancel", (*suite).watchCancel},
		{"WatchSlow", (*suite).watchSlow},
		{"TimeToLive", (*suite).timeToLive},
		{"TimeToLiveReplaced", (*suite).timeToLiveReplaced},
		{"Contention", (*suite).contention},
		{"ReadYourWrites", (*suite).readYourWrites},
		{"CompactionRace", (*suite).compactionRace},
		{"Close", (*suite).close},
		{"Random", (*suite).random},
		{"Reopen", (*suite).reopenKeeps},
		{"ReopenTimeToLive", (*suite).reopenTimeToLive},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(c, t)
		})
	}
}

// kit is a store with helpers that fail the test.
type kit struct {
	t   *testing.T
	s   storage.Store
	ctx context.Context
}

func (c *suite) kit(t *testing.T) *kit {
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	t.Cleanup(cancel)
	return &kit{t: t, s: c.open(t), ctx: ctx}
}

func (k *kit) commit(txn storage.Txn) int64 {
	k.t.Helper()
	r, err := k.s.Commit(k.ctx, txn)
	if err != nil {
		k.t.Fatalf("Commit: %v", err)
	}
	return r
}

func (k *kit) put(key, value string) int64 {
	k.t.Helper()
	return k.commit(storage.Txn{Ops: []storage.Op{storage.Put(key, []byte(value))}})
}

func (k *kit) delete(key string) int64 {
	k.t.Helper()
	return k.commit(storage.Txn{Ops: []storage.Op{storage.Delete(key)}})
}

func (k *kit) get(key string, revision int64) storage.Entry {
	k.t.Helper()
	e, at, err := k.s.Get(k.ctx, key, revision)
	if err != nil {
		k.t.Fatalf("Get(%q, %d): %v", key, revision, err)
	}
	if revision != 0 && at != revision {
		k.t.Fatalf("Get(%q, %d) reflects revision %d", key, revision, at)
	}
	if e.ModRevision > at {
		k.t.Fatalf("Get(%q, %d): entry at %d, answer at %d", key, revision, e.ModRevision, at)
	}
	return e
}

func (k *kit) rng(r storage.RangeRequest) storage.RangeResult {
	k.t.Helper()
	result, err := k.s.Range(k.ctx, r)
	if err != nil {
		k.t.Fatalf("Range(%+v): %v", r, err)
	}
	if r.Revision != 0 && result.Revision != r.Revision {
		k.t.Fatalf("Range(%+v) reflects revision %d", r, result.Revision)
	}
	return result
}

func (k *kit) revision() int64 {
	k.t.Helper()
	r, err := k.s.Revision(k.ctx)
	if err != nil {
		k.t.Fatalf("Revision: %v", err)
	}
	return r
}

func (k *kit) watch(prefix string, from int64) storage.Watcher {
	k.t.Helper()
	w, err := k.s.Watch(k.ctx, prefix, from)
	if err != nil {
		k.t.Fatalf("Watch(%q, %d): %v", prefix, from, err)
	}
	k.t.Cleanup(func() { w.Close() })
	return w
}

// events reads n events from w and checks the order of what it delivers.
func (k *kit) events(w storage.Watcher, n int) []storage.Event {
	k.t.Helper()
	var events []storage.Event
	for len(events) < n {
		events = append(events, k.next(w).Events...)
	}
	if len(events) > n {
		k.t.Fatalf("%d events, want %d: %+v", len(events), n, events[n:])
	}
	return events
}

// until reads from w until it has reached revision.
func (k *kit) until(w storage.Watcher, revision int64) []storage.Event {
	k.t.Helper()
	var events []storage.Event
	for {
		b := k.next(w)
		events = append(events, b.Events...)
		if b.Revision >= revision {
			return events
		}
		k.revision() // asks for progress
	}
}

func (k *kit) next(w storage.Watcher) storage.Batch {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.ctx, patience)
	defer cancel()
	b, err := w.Next(ctx)
	if err != nil {
		k.t.Fatalf("Next: %v", err)
	}
	last := int64(0)
	for _, e := range b.Events {
		if e.Entry.ModRevision < last || e.Entry.ModRevision > b.Revision {
			k.t.Fatalf("event at revision %d after %d in a batch to %d", e.Entry.ModRevision, last, b.Revision)
		}
		last = e.Entry.ModRevision
	}
	return b
}

// eventually waits until done holds.
func (k *kit) eventually(what string, done func() bool) {
	k.t.Helper()
	deadline := time.Now().Add(patience)
	for !done() {
		if time.Now().After(deadline) {
			k.t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// receive returns what a channel has to deliver, within a time that is no measurement.
func receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
		panic("unreachable")
	}
}
