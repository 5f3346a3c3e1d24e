package cache

import (
	"fmt"
	"testing"
)

// writeWithEncoding writes an object together with an encoding that the write made.
func writeWithEncoding(t *testing.T, s *fakeStore, r *Resource, i, size int) *Object {
	t.Helper()
	key := fmt.Sprintf("ns/p%05d", i)
	revision := put(t, s, key, "node1|red|0")
	o, ok := snapshot(t, r, revision).Get(key)
	if !ok {
		t.Fatalf("%s is not there", key)
	}
	r.AddEncoding(key, revision, 1, make([]byte, size))
	return o
}

// TestUnusedRecentEncodingsAreDropped checks that the encodings of writes are cached while they are recent, and
// dropped later if nobody has used them.
func TestUnusedRecentEncodingsAreDropped(t *testing.T) {
	const n, size = 200, 1 << 10
	s := newFakeStore()
	c := newCache(t, s, func(o *Options) { o.EncodingBudget = 64 * size })
	r := c.Resource(podConfig())
	snapshot(t, r, 0) // loads the resource: encodings of objects that are not in memory are dropped
	var objects []*Object
	for i := range n {
		objects = append(objects, writeWithEncoding(t, s, r, i, size))
	}
	for i, o := range objects {
		k := o.attached.Load()
		if recent := i >= n-4; recent && (k == nil || k.encodings.Load() == nil) {
			t.Errorf("encoding %d of %d is gone", i, n)
		} else if i < n-8 && k != nil {
			t.Errorf("encoding %d of %d, which nobody used, is there", i, n)
		}
	}
	if used := c.encodings.used.Load(); used > 8*(size+encodingOverhead) {
		t.Errorf("%d bytes are kept", used)
	}
}

// TestUsedRecentEncodingsStay checks that an encoding that was used stays cached after it is not recent any more.
func TestUsedRecentEncodingsStay(t *testing.T) {
	const size = 1 << 10
	s := newFakeStore()
	c := newCache(t, s, func(o *Options) { o.EncodingBudget = 64 * size })
	r := c.Resource(podConfig())
	snapshot(t, r, 0)
	var first *Object
	for i := range 100 {
		o := writeWithEncoding(t, s, r, i, size)
		if i == 0 {
			first = o
			if _, ok := o.CachedEncoding(1); !ok {
				t.Fatal("the encoding is not there")
			}
		}
	}
	if _, ok := first.CachedEncoding(1); !ok {
		t.Error("a used encoding is not cached any more")
	}
	// It is dropped when it is not requested for a long time.
	c.encodings.expire()
	c.encodings.expire()
	if _, ok := first.CachedEncoding(1); ok {
		t.Error("an encoding that nobody requests is cached")
	}
	used := c.encodings.used.Load()
	c.encodings.recent.mu.Lock()
	recent := c.encodings.recent.bytes
	c.encodings.recent.mu.Unlock()
	if used != recent || len(c.encodings.clock) != 0 {
		t.Errorf(
			"%d bytes are charged, %d of them for recent encodings; %d on the clock", used, recent, len(c.encodings.clock),
		)
	}
}
