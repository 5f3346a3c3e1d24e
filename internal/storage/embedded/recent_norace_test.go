//go:build !race

package embedded

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/internal/storage"
)

// TestPlanAllocations checks that the planning of a transaction allocates its record and the events of it, and little
// more for the group. With the race detector pools drop what is put into them, and Pebble checks itself.
func TestPlanAllocations(t *testing.T) {
	a := &appliedVersions{newestOf: map[string]version{}}
	p := testPlanner(t, a, 1<<20)
	requests := make([]*request, 64)
	for i := range requests {
		requests[i] = newRequest(storage.Txn{Ops: []storage.Op{storage.Put(fmt.Sprintf("/%d", i), make([]byte, 300))}})
	}
	plan := func() {
		g := p.plan(requests, func(b *pebble.Batch) batch { return &pebbleBatch{b: b} })
		if err := g.batch.(*pebbleBatch).b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	plan()
	// All goroutines of the process count, also those that stores of other tests have left; they add, so the least of several is right.
	n := testing.AllocsPerRun(100, plan)
	for range 5 {
		n = min(n, testing.AllocsPerRun(20, plan))
	}
	if n > 2*64+16 {
		t.Errorf("%v allocations for a group of %d transactions", n, len(requests))
	}
}
