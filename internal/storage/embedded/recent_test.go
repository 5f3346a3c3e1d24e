package embedded

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/internal/storage"
)

// TestRecentVersions compares recentVersions with a map of all newest versions.
func TestRecentVersions(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		r, all, sinceTrim := newRecentVersions(rng.IntN(20_000)), map[string]version{}, map[string]bool{}
		for revision := range int64(1000) {
			key := fmt.Sprintf("/%d", rng.IntN(100))
			v := version{revision: revision + 1, value: make([]byte, rng.IntN(300))}
			r.put(key, v)
			all[key], sinceTrim[key] = v, true
			if rng.IntN(10) == 0 {
				r.trim()
				clear(sinceTrim)
				if r.bytes > r.limit {
					t.Fatalf("%d bytes after trim, the limit is %d", r.bytes, r.limit)
				}
			}
			for key, want := range all {
				got, ok := r.get(key)
				if ok && got.revision != want.revision {
					t.Fatalf("%s is at revision %d, want %d", key, got.revision, want.revision)
				}
				if !ok && sinceTrim[key] {
					t.Fatalf("%s was dropped before trim", key)
				}
			}
			if len(r.newest) > len(r.queue) {
				t.Fatalf("%d versions, %d elements of the queue", len(r.newest), len(r.queue))
			}
		}
	}
}

// appliedVersions is the database of a planner in a test: the newest versions of the applied groups.
type appliedVersions struct {
	newestOf map[string]version
	opened   int // number of readers
	events   []storage.Event
}

func (a *appliedVersions) newest(key string) (version, bool, error) {
	v, ok := a.newestOf[key]
	return v, ok, nil
}

func (a *appliedVersions) close() error { return nil }

// testPlanner returns a planner on a, with limit bytes for recent versions.
func testPlanner(t *testing.T, a *appliedVersions, limit int) *planner {
	s := mustOpen(t, Options{InMemory: true})
	return &planner{
		lastRevision: 1,
		durable:      func() int64 { return 0 },
		now:          func() int64 { return 0 },
		wall:         time.Now,
		scheduled:    func(int64) {},
		view: func() (versionReader, error) {
			a.opened++
			return a, nil
		},
		batch:  func() *pebble.Batch { return s.db.NewBatch() },
		recent: newRecentVersions(limit),
	}
}

// planGroup plans txns as one group, applies it to a and returns the answers.
func planGroup(t *testing.T, p *planner, a *appliedVersions, txns []storage.Txn) []answer {
	var requests []*request
	for _, txn := range txns {
		requests = append(requests, newRequest(txn))
	}
	g := p.plan(requests, func(b *pebble.Batch) batch { return &pebbleBatch{b: b} })
	if b, ok := g.batch.(*pebbleBatch); ok {
		if err := b.b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, rec := range g.records {
		for _, e := range rec.events {
			a.events = append(a.events, e)
			a.newestOf[e.Entry.Key] = version{
				revision: rec.revision, create: e.Entry.CreateRevision, tombstone: e.Deleted, value: e.Entry.Value,
			}
		}
	}
	answers := make([]answer, len(requests))
	for i, r := range requests {
		select {
		case <-r.done: // answered at once
			answers[i] = answer{r, r.revision, r.err}
		default:
			for _, found := range g.answers {
				if found.request == r {
					answers[i] = found
				}
			}
		}
	}
	return answers
}

// TestPlannerRecent plans random groups with little memory for recent versions. It compares each answer and each
// event with a map of the newest revisions.
func TestPlannerRecent(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 30 {
		a := &appliedVersions{newestOf: map[string]version{}}
		p := testPlanner(t, a, rng.IntN(3000))
		model := map[string]storage.Entry{}
		revision := int64(1)
		for range 100 {
			txns := make([]storage.Txn, 1+rng.IntN(10))
			for i := range txns {
				key := fmt.Sprintf("/%d", rng.IntN(20))
				txns[i].Ops = []storage.Op{{Key: key, Delete: rng.IntN(4) == 0, Value: []byte(fmt.Sprint(rng.Uint64()))}}
				if rng.IntN(3) > 0 {
					condition := storage.Condition{Key: fmt.Sprintf("/%d", rng.IntN(20))}
					if rng.IntN(2) == 0 { // usually right, if no transaction before it in the group has the same key
						condition = storage.Condition{Key: key, ModRevision: model[key].ModRevision}
					}
					txns[i].Conditions = []storage.Condition{condition}
				}
			}
			prev := map[int64]storage.Entry{} // by the revision of the event
			wants := make([]error, len(txns))
			for i, txn := range txns {
				for _, c := range txn.Conditions {
					if model[c.Key].ModRevision != c.ModRevision {
						wants[i] = &storage.ConflictError{Condition: c, Current: model[c.Key]}
					}
				}
				op := txn.Ops[0]
				before, exists := model[op.Key]
				if wants[i] != nil || op.Delete && !exists {
					continue
				}
				revision++
				prev[revision] = before
				delete(model, op.Key)
				if !op.Delete {
					e := storage.Entry{Key: op.Key, Value: op.Value, ModRevision: revision, CreateRevision: revision}
					if exists {
						e.CreateRevision = before.CreateRevision
					}
					model[op.Key] = e
				}
			}
			for i, got := range planGroup(t, p, a, txns) {
				var conflict, want *storage.ConflictError
				errors.As(got.err, &conflict)
				errors.As(wants[i], &want)
				if (conflict == nil) != (want == nil) {
					t.Fatalf("transaction %+v: %v, want %v", txns[i], got.err, wants[i])
				}
				if want != nil && fmt.Sprint(conflict.Current) != fmt.Sprint(want.Current) {
					t.Fatalf("the conflict has %+v, want %+v", conflict.Current, want.Current)
				}
			}
			for _, e := range a.events {
				if want := prev[e.Entry.ModRevision]; fmt.Sprint(e.Prev) != fmt.Sprint(want) {
					t.Fatalf("the event at revision %d has %+v before it, want %+v", e.Entry.ModRevision, e.Prev, want)
				}
			}
			a.events = nil
			if p.lastRevision != revision {
				t.Fatalf("revision %d, want %d", p.lastRevision, revision)
			}
			for key, want := range model {
				if got := a.newestOf[key]; got.revision != want.ModRevision || got.create != want.CreateRevision {
					t.Fatalf("%s is at %d, created at %d, want %+v", key, got.revision, got.create, want)
				}
			}
		}
	}
}

// TestPlannerReadsOnce checks that a version that was written or read is not read from the database again.
func TestPlannerReadsOnce(t *testing.T) {
	a := &appliedVersions{newestOf: map[string]version{}}
	p := testPlanner(t, a, 1<<20)
	key := "/a"
	for i, want := range []int{1, 1, 1} {
		planGroup(t, p, a, []storage.Txn{{Ops: []storage.Op{storage.Put(key, []byte("x"))}}})
		if a.opened != want {
			t.Errorf("after %d groups the database was opened %d times, want %d", i+1, a.opened, want)
		}
	}
	p.recent.limit = 0
	planGroup(t, p, a, []storage.Txn{{Ops: []storage.Op{storage.Put(key, []byte("x"))}}})
	if a.opened != 2 {
		t.Errorf("the database was opened %d times after the version was dropped, want 2", a.opened)
	}
}
