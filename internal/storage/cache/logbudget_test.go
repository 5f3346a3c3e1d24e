package cache

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/storage"
)

func TestFairSize(t *testing.T) {
	const kib = 1 << 10
	for _, c := range []struct {
		sizes             []int64
		limit, most, want int64
	}{
		{nil, 100 * kib, 50 * kib, 50 * kib},
		{[]int64{10 * kib, 20 * kib}, 100 * kib, 50 * kib, 50 * kib},
		{[]int64{10 * kib, 200 * kib}, 100 * kib, 500 * kib, 90 * kib},
		{[]int64{300 * kib, 10 * kib, 200 * kib}, 100 * kib, 500 * kib, 45 * kib},
		{[]int64{300 * kib, 10 * kib, 200 * kib}, 100 * kib, 30 * kib, 30 * kib},
		{[]int64{300 * kib, 300 * kib}, 2 * kib, 500 * kib, leastLog},
		{[]int64{300 * kib}, 2 * kib, 1, 1},
	} {
		if got := fairSize(c.sizes, c.limit, c.most); got != c.want {
			t.Errorf("%v within %d: %d, want %d", c.sizes, c.limit, got, c.want)
		}
	}
}

// thingConfig returns the configuration of resource i of many.
func thingConfig(i int) Config {
	return Config{
		Resource: fmt.Sprint("things", i), Prefix: fmt.Sprintf("%sthings%d/", Root, i), Namespaced: true, Indexes: []string{"node"},
		Codec: fakeCodec{},
	}
}

// TestBudget fills small resources and their logs beyond the budget. All of them stay readable, and watches go on.
func TestBudget(t *testing.T) {
	const budget, resources, objects, size = 4 << 20, 16, 100, 4 << 10
	s := newFakeStore()
	c := newCache(t, s, func(o *Options) { o.Budget = budget })
	fill := func(round int) {
		for i := range resources {
			for n := range objects {
				value := fmt.Sprintf("n1|red|%d%s", round, strings.Repeat("x", size))
				commit(t, s, storage.Put(fmt.Sprintf("%sa/p%d", thingConfig(i).Prefix, n), []byte(value)))
			}
		}
	}
	fill(0)
	read := func() {
		t.Helper()
		for i := range resources {
			v, err := c.Resource(thingConfig(i)).View(t.Context(), Latest)
			if err != nil {
				t.Fatal(err)
			}
			for n := range objects {
				if o, ok, err := v.Get(t.Context(), fmt.Sprintf("a/p%d", n)); err != nil || !ok || len(o.Data) < size {
					t.Fatalf("resource %d, object %d: %v, %v", i, n, ok, err)
				}
			}
		}
	}
	read()
	if u := c.Usage(); u.Objects > c.memory.LoadedBytes || u.Objects == 0 {
		t.Errorf("%d bytes of objects after the reads, limit %d", u.Objects, c.memory.LoadedBytes)
	}
	for round := range 3 {
		fill(1 + round)
		read()
	}
	wait.Until(t, "the logs are within their part of the budget", func() bool { return c.Usage().Logs <= budget/8 })
	wait.Until(t, "the objects are within their part of the budget", func() bool { return c.Usage().Objects <= c.memory.LoadedBytes })
	if u := c.Usage(); u.Budget != budget || u.Logs == 0 {
		t.Errorf("usage %+v", u)
	}
}

// TestLogsOfRemovedResources removes resources while others are written. The logs of removed resources, which are
// kept for a while, count in the budget like other logs. After Close the budget has no bytes in use.
func TestLogsOfRemovedResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget, resources, objects, size = 4 << 20, 16, 20, 4 << 10
		s := newFakeStore()
		c := newCache(t, s, func(o *Options) { o.Budget = budget })
		for i := range resources {
			r := c.Resource(thingConfig(i))
			snapshot(t, r, 0)
			revision := int64(0)
			for n := range objects {
				value := fmt.Sprintf("n1|red|%s", strings.Repeat("x", size))
				revision = commit(t, s, storage.Put(fmt.Sprintf("%sa/p%d", thingConfig(i).Prefix, n%2), []byte(value)))
			}
			snapshot(t, r, revision)
			c.Remove(thingConfig(i).Prefix)
		}
		time.Sleep(removedGrace / 2)
		synctest.Wait()
		if n := c.Usage().Logs; n == 0 || n > budget/8 {
			t.Errorf("the logs of removed resources take %d bytes, want more than 0 and at most %d", n, budget/8)
		}
		c.Close()
		if n := c.Usage().Logs; n != 0 {
			t.Errorf("the logs take %d bytes after Close", n)
		}
	})
}
