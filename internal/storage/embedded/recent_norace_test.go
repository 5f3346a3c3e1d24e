//go:build !race

package embedded

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/internal/storage"
)

// TestPlanAllocations checks that planning a transaction only allocates its record and its events, and a little
// more for the group. It does not run with the race detector, with which pools drop their contents and Pebble
// checks itself.
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
	// The count includes all goroutines of the process, also those of stores that other tests have left. They can
	// only increase it, so the minimum of several runs is right.
	n := testing.AllocsPerRun(100, plan)
	for range 5 {
		n = min(n, testing.AllocsPerRun(20, plan))
	}
	if n > 2*64+16 {
		t.Errorf("%v allocations for a group of %d transactions", n, len(requests))
	}
}
