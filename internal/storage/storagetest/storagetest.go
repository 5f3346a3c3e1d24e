// Package storagetest is the conformance suite of storage.Store, which every backend passes. It tests the contract
// in the comments of the interface, and uses only this interface. Additional promises of a backend are tested in
// the package of the backend.
//
// Run runs the tests, whose list is in storagetest.go. reads.go, writes.go and watches.go test single methods;
// lifetimes.go tests times to live, compaction, closing and reopening; random.go compares random operations with a
// simple model.
package storagetest

import (
	"context"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
)

// timeout limits the time that a test waits for an event that must happen. A correct store never needs nearly as long.
const timeout = 30 * time.Second

// Option adds tests of features that only some backends have.
type Option func(*suite)

// WithReopen adds the tests of durability. reopen closes the store and opens it again on the same data.
func WithReopen(reopen func(t *testing.T, s storage.Store) storage.Store) Option {
	return func(c *suite) { c.reopen = reopen }
}

// randomSteps is the number of operations of the random test.
const randomSteps = 1500

type suite struct {
	open   func(t *testing.T) storage.Store
	reopen func(t *testing.T, s storage.Store) storage.Store
}

// Run runs the suite. open returns a new, empty store, and closes it in t.Cleanup; a test may close it before that.
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
		{"RangeBytes", (*suite).rangeBytes},
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

// env is a store with methods that end the test on an error.
type env struct {
	t   *testing.T
	s   storage.Store
	ctx context.Context
}

func (su *suite) env(t *testing.T) *env {
	ctx, cancel := context.WithTimeout(context.Background(), 4*timeout)
	t.Cleanup(cancel)
	return &env{t: t, s: su.open(t), ctx: ctx}
}

func (en *env) commit(txn storage.Txn) int64 {
	en.t.Helper()
	r, err := en.s.Commit(en.ctx, txn)
	if err != nil {
		en.t.Fatalf("Commit: %v", err)
	}
	return r
}

func (en *env) put(key, value string) int64 {
	en.t.Helper()
	return en.commit(storage.Txn{Ops: []storage.Op{storage.Put(key, []byte(value))}})
}

func (en *env) delete(key string) int64 {
	en.t.Helper()
	return en.commit(storage.Txn{Ops: []storage.Op{storage.Delete(key)}})
}

func (en *env) get(key string, revision int64) storage.Entry {
	en.t.Helper()
	e, at, err := en.s.Get(en.ctx, key, revision)
	if err != nil {
		en.t.Fatalf("Get(%q, %d): %v", key, revision, err)
	}
	if revision != 0 && at != revision {
		en.t.Fatalf("Get(%q, %d) reflects revision %d", key, revision, at)
	}
	if e.ModRevision > at {
		en.t.Fatalf("Get(%q, %d): entry at %d, answer at %d", key, revision, e.ModRevision, at)
	}
	return e
}

func (en *env) rangeKeys(r storage.RangeRequest) storage.RangeResult {
	en.t.Helper()
	result, err := en.s.Range(en.ctx, r)
	if err != nil {
		en.t.Fatalf("Range(%+v): %v", r, err)
	}
	if r.Revision != 0 && result.Revision != r.Revision {
		en.t.Fatalf("Range(%+v) reflects revision %d", r, result.Revision)
	}
	return result
}

func (en *env) revision() int64 {
	en.t.Helper()
	r, err := en.s.Revision(en.ctx)
	if err != nil {
		en.t.Fatalf("Revision: %v", err)
	}
	return r
}

func (en *env) watch(prefix string, from int64) storage.Watcher {
	en.t.Helper()
	w, err := en.s.Watch(en.ctx, prefix, from)
	if err != nil {
		en.t.Fatalf("Watch(%q, %d): %v", prefix, from, err)
	}
	en.t.Cleanup(func() { w.Close() })
	return w
}

// events reads n events from w. The test fails if there are more.
func (en *env) events(w storage.Watcher, n int) []storage.Event {
	en.t.Helper()
	var events []storage.Event
	for len(events) < n {
		events = append(events, en.next(w).Events...)
	}
	if len(events) > n {
		en.t.Fatalf("%d events, want %d: %+v", len(events), n, events[n:])
	}
	return events
}

// eventsUntil reads from w until it has reached revision, and returns the events.
func (en *env) eventsUntil(w storage.Watcher, revision int64) []storage.Event {
	en.t.Helper()
	var events []storage.Event
	for {
		b := en.next(w)
		events = append(events, b.Events...)
		if b.Revision >= revision {
			return events
		}
		en.revision() // makes the store send progress
	}
}

// next returns the next batch of w and checks the order of its events.
func (en *env) next(w storage.Watcher) storage.Batch {
	en.t.Helper()
	ctx, cancel := context.WithTimeout(en.ctx, timeout)
	defer cancel()
	b, err := w.Next(ctx)
	if err != nil {
		en.t.Fatalf("Next: %v", err)
	}
	last := int64(0)
	for _, e := range b.Events {
		if e.Entry.ModRevision < last || e.Entry.ModRevision > b.Revision {
			en.t.Fatalf("event at revision %d after %d in a batch to %d", e.Entry.ModRevision, last, b.Revision)
		}
		last = e.Entry.ModRevision
	}
	return b
}
