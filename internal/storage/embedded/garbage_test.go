package embedded

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestGarbage compares the spans with a list of all additions.
func TestGarbage(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		g, added := &garbage{}, map[string]int64{}
		keys, total := 1+rng.IntN(400), int64(0)
		key := func(i int) string { return fmt.Sprintf("/%03d", i) }
		for range 2000 {
			n := rng.Int64N(1000)
			total += n
			first := rng.IntN(keys)
			last := first
			if rng.IntN(20) == 0 {
				last = min(first+rng.IntN(5), keys-1)
			}
			added[key(first)] += n
			g.add(key(first), key(last), n)
			if len(g.spans) > maxGarbageSpans {
				t.Fatalf("%d spans", len(g.spans))
			}
		}
		var sum int64
		for i, s := range g.spans {
			if s.first > s.last || i > 0 && g.spans[i-1].last >= s.first {
				t.Fatalf("span %d: %+v after %+v", i, s, g.spans[max(i-1, 0)])
			}
			sum += s.bytes
		}
		for k, n := range added {
			for _, s := range g.spans {
				if s.first <= k && k <= s.last {
					n = 0
				}
			}
			if n != 0 {
				t.Errorf("no span has %s", k)
			}
		}
		if sum != total || g.total != total {
			t.Errorf("%d bytes in the spans, %d in all, %d were added", sum, g.total, total)
		}
		g.scaleDown(total / 3)
		if g.total > total/3 || g.total < total/3-maxGarbageSpans {
			t.Errorf("%d bytes after shrinking %d to a third", g.total, total)
		}
	}
}
