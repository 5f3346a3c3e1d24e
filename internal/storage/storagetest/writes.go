package storagetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/keelson-dev/keelson/internal/storage"
)

func (en *env) wantConflict(txn storage.Txn, condition storage.Condition, current storage.Entry) {
	en.t.Helper()
	before := en.revision()
	_, err := en.s.Commit(en.ctx, txn)
	var conflict *storage.ConflictError
	if !errors.As(err, &conflict) {
		en.t.Fatalf("Commit: %v, want a conflict", err)
	}
	if conflict.Condition != condition {
		en.t.Errorf("conflict over %+v, want %+v", conflict.Condition, condition)
	}
	c := conflict.Current
	if c.ModRevision != current.ModRevision || c.CreateRevision != current.CreateRevision ||
		string(c.Value) != string(current.Value) {
		en.t.Errorf("conflict with %+v, want %+v", c, current)
	}
	if conflict.Revision < before || conflict.Revision < c.ModRevision {
		en.t.Errorf("conflict at revision %d, store was at %d", conflict.Revision, before)
	}
	if after := en.revision(); after != before {
		en.t.Errorf("a conflict moved the revision from %d to %d", before, after)
	}
}

func (su *suite) conditions(t *testing.T) {
	k := su.env(t)
	absent := storage.Condition{Key: "/a"}
	r1 := k.commit(storage.Txn{Conditions: []storage.Condition{absent}, Ops: []storage.Op{storage.Put("/a", []byte("1"))}})
	k.wantConflict(
		storage.Txn{Conditions: []storage.Condition{absent}, Ops: []storage.Op{storage.Put("/a", []byte("x"))}}, absent,
		k.get("/a", 0),
	)

	exact := storage.Condition{Key: "/a", ModRevision: r1}
	r2 := k.commit(storage.Txn{Conditions: []storage.Condition{exact}, Ops: []storage.Op{storage.Put("/a", []byte("2"))}})
	k.wantConflict(
		storage.Txn{Conditions: []storage.Condition{exact}, Ops: []storage.Op{storage.Delete("/a")}}, exact, k.get("/a", 0),
	)
	k.wantEntry(k.get("/a", 0), "/a", "2", r2, r1)

	// The conflict is about the first condition that fails.
	second := storage.Condition{Key: "/other", ModRevision: 7}
	k.wantConflict(storage.Txn{
		Conditions: []storage.Condition{{Key: "/a", ModRevision: r2}, second, absent},
		Ops:        []storage.Op{storage.Put("/b", nil)},
	}, second, storage.Entry{})

	k.commit(
		storage.Txn{Conditions: []storage.Condition{{Key: "/a", ModRevision: r2}}, Ops: []storage.Op{storage.Delete("/a")}},
	)
	gone := storage.Condition{Key: "/a", ModRevision: r2}
	k.wantConflict(
		storage.Txn{Conditions: []storage.Condition{gone}, Ops: []storage.Op{storage.Put("/a", nil)}}, gone, storage.Entry{},
	)
	r4 := k.commit(storage.Txn{Conditions: []storage.Condition{absent}, Ops: []storage.Op{storage.Put("/a", []byte("4"))}})
	k.wantEntry(k.get("/a", 0), "/a", "4", r4, r4)
}

func (su *suite) transactions(t *testing.T) {
	k := su.env(t)
	k.put("/b", "before")
	w := k.watch("/", 0)
	r := k.commit(storage.Txn{
		Conditions: []storage.Condition{{Key: "/elsewhere"}},
		Ops: []storage.Op{
			storage.Put("/z", []byte("z")), storage.Delete("/b"), storage.Put("/a", []byte("a")), storage.Delete("/missing"),
		},
	})
	if r != k.revision() {
		t.Errorf("Commit returned %d, revision is %d", r, k.revision())
	}
	got := ""
	for _, e := range k.events(w, 3) {
		got += fmt.Sprint(e.Entry.Key, e.Deleted, e.Entry.ModRevision-r, ";")
	}
	if want := "/zfalse 0;/btrue 0;/afalse 0;"; got != want {
		t.Errorf("events %q, want %q", got, want)
	}
	k.wantEntry(k.get("/z", 0), "/z", "z", r, r)
	k.wantEntry(k.get("/a", 0), "/a", "a", r, r)
	if e := k.get("/z", r-1); e.ModRevision != 0 {
		t.Errorf("half a transaction: %+v", e)
	}
}

func (su *suite) noChange(t *testing.T) {
	k := su.env(t)
	r := k.put("/a", "1")
	for _, txn := range []storage.Txn{
		{},
		{Conditions: []storage.Condition{{Key: "/a", ModRevision: r}}},
		{Conditions: []storage.Condition{{Key: "/missing"}}},
		{Ops: []storage.Op{storage.Delete("/missing")}},
		{Ops: []storage.Op{storage.Delete("/missing"), storage.Delete("/missing2")}},
	} {
		if got := k.commit(txn); got != r {
			t.Errorf("Commit(%+v) returned revision %d, want %d", txn, got, r)
		}
	}
	k.wantConflict(storage.Txn{Conditions: []storage.Condition{{Key: "/a"}}}, storage.Condition{Key: "/a"}, k.get("/a", 0))
	if got := k.put("/b", "1"); got != r+1 {
		t.Errorf("revision %d after what changed nothing, want %d", got, r+1)
	}
}

// contention runs goroutines that increment counters with conditions. No increment may be lost, and the entry in
// each conflict must have existed at the revision in the conflict.
func (su *suite) contention(t *testing.T) {
	k := su.env(t)
	const workers, increments, counters = 16, 40, 2
	var wg sync.WaitGroup
	var mu sync.Mutex
	revisions := map[int64]string{}
	for i := range workers {
		wg.Go(func() {
			key := fmt.Sprintf("/counter/%d", i%counters)
			current, _, err := k.s.Get(k.ctx, key, 0)
			for n := 0; n < increments && err == nil; {
				var value int
				fmt.Sscan(string(current.Value), &value)
				next := fmt.Sprint(value + 1)
				var r int64
				r, err = k.s.Commit(k.ctx, storage.Txn{
					Conditions: []storage.Condition{{Key: key, ModRevision: current.ModRevision}},
					Ops:        []storage.Op{storage.Put(key, []byte(next))},
				})
				var conflict *storage.ConflictError
				switch {
				case err == nil:
					mu.Lock()
					if before, twice := revisions[r]; twice {
						t.Errorf("revision %d given twice: %s and %s", r, before, next)
					}
					revisions[r] = key + "=" + next
					mu.Unlock()
					current = storage.Entry{Key: key, Value: []byte(next), ModRevision: r}
					n++
				case errors.As(err, &conflict):
					current = conflict.Current
					seen, at, getErr := k.s.Get(k.ctx, key, conflict.Revision)
					if getErr != nil || at != conflict.Revision || seen.ModRevision != current.ModRevision ||
						string(seen.Value) != string(current.Value) {
						t.Errorf("conflict says %+v at %d, a read there says %+v, %v", current, conflict.Revision, seen, getErr)
					}
					err = nil
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range counters {
		key := fmt.Sprintf("/counter/%d", i)
		if got, want := string(k.get(key, 0).Value), fmt.Sprint(workers/counters*increments); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	for r, want := range revisions {
		key := want[:len("/counter/0")]
		if e := k.get(key, r); key+"="+string(e.Value) != want || e.ModRevision != r {
			t.Errorf("at %d: %+v, want %s", r, e, want)
		}
	}
}

// readYourWrites checks that every kind of read returns the changes of a Commit that has returned.
func (su *suite) readYourWrites(t *testing.T) {
	k := su.env(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			key := fmt.Sprintf("/k/%d", i)
			for n := range 50 {
				r, err := k.s.Commit(k.ctx, storage.Txn{Ops: []storage.Op{storage.Put(key, fmt.Append(nil, n))}})
				if err != nil {
					t.Error(err)
					return
				}
				e, at, err := k.s.Get(k.ctx, key, 0)
				if err != nil || e.ModRevision != r || at < r {
					t.Errorf("Get after the commit of %d: %+v at %d, %v", r, e, at, err)
				}
				if now, err := k.s.Revision(k.ctx); err != nil || now < r {
					t.Errorf("Revision after the commit of %d: %d, %v", r, now, err)
				}
				result, err := k.s.Range(k.ctx, storage.RangeRequest{Start: key, End: key + "\x00"})
				if err != nil || len(result.Entries) != 1 || result.Entries[0].ModRevision != r {
					t.Errorf("Range after the commit of %d: %+v, %v", r, result, err)
				}
				if old, _, err := k.s.Get(k.ctx, key, r-1); err != nil || old.ModRevision >= r {
					t.Errorf("Get before the commit of %d: %+v, %v", r, old, err)
				}
			}
		})
	}
	wg.Wait()
}
