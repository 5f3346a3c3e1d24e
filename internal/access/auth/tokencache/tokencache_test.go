package tokencache

import (
	"encoding/binary"
	"testing"
)

func key(i int) (k Key) {
	binary.BigEndian.PutUint64(k[:], uint64(i))
	return k
}

func TestUsedEntriesStayInTheBoundedCache(t *testing.T) {
	const size = 8
	c := New[int](size)
	for i := range 100 * size {
		c.Put(key(i), i)
		if v, ok := c.Get(key(0)); !ok || v != 0 {
			t.Fatalf("after %d puts the entry in use is gone", i)
		}
		if n := len(c.young) + len(c.old); n > 2*size {
			t.Fatalf("%d entries", n)
		}
	}
	if _, ok := c.Get(key(1)); ok {
		t.Error("an entry that nobody asks for is kept")
	}
	if v, ok := c.Get(key(100*size - 1)); !ok || v != 100*size-1 {
		t.Error("the last entry is gone")
	}
}
