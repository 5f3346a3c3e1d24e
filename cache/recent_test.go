package cache

import (
	"fmt"
	"testing"
)

// writeWithForm writes an object whose writer made a form of it.
func writeWithForm(t *testing.T, s *fakeStore, r *Resource, i, size int) *Object {
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

// What writers made is kept while it is young, and longer if it was used.
func TestYoungFormsAreForgotten(t *testing.T) {
	const n, size = 200, 1 << 10
	s := newFakeStore()
	c := newCache(t, s, func(o *Options) { o.EncodingBudget = 64 * size })
	r := c.Resource(podConfig())
	snapshot(t, r, 0) // loads it: an offer of what is not loaded is dropped
	var objects []*Object
	for i := range n {
		objects = append(objects, writeWithForm(t, s, r, i, size))
	}
	for i, o := range objects {
		k := o.attached.Load()
		if young := i >= n-4; young && (k == nil || k.encodings.Load() == nil) {
			t.Errorf("form %d of %d is gone", i, n)
		} else if i < n-8 && k != nil {
			t.Errorf("form %d of %d, which nobody used, is there", i, n)
		}
	}
	if used := c.encodings.used.Load(); used > 8*(size+encodingOverhead) {
		t.Errorf("%d bytes are kept", used)
	}
}

func TestUsedFormsOutliveTheYoung(t *testing.T) {
	const size = 1 << 10
	s := newFakeStore()
	c := newCache(t, s, func(o *Options) { o.EncodingBudget = 64 * size })
	r := c.Resource(podConfig())
	snapshot(t, r, 0)
	var first *Object
	for i := range 100 {
		o := writeWithForm(t, s, r, i, size)
		if i == 0 {
			first = o
			if _, ok := o.CachedEncoding(1); !ok {
				t.Fatal("the form is not there")
			}
		}
	}
	if _, ok := first.CachedEncoding(1); !ok {
		t.Error("a form that was used is gone")
	}
	// It goes when nobody asks for it for long.
	c.encodings.expire()
	c.encodings.expire()
	if _, ok := first.CachedEncoding(1); ok {
		t.Error("a form is kept for nobody")
	}
	used := c.encodings.used.Load()
	c.encodings.recent.mu.Lock()
	young := c.encodings.recent.bytes
	c.encodings.recent.mu.Unlock()
	if used != young || len(c.encodings.clock) != 0 {
		t.Errorf("%d bytes are charged, %d of them for young forms; %d on the clock", used, young, len(c.encodings.clock))
	}
}
