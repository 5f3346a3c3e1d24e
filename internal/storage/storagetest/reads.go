package storagetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/storage"
)

func (su *suite) emptyStore(t *testing.T) {
	k := su.env(t)
	if r := k.revision(); r != 1 {
		t.Errorf("Revision of an empty store is %d, want 1", r)
	}
	if e := k.get("/a", 0); e.ModRevision != 0 || e.Value != nil {
		t.Errorf("Get of a missing key: %+v", e)
	}
	if r := k.rangeKeys(storage.RangeRequest{}); len(r.Entries) != 0 || r.Count != 0 || r.More || r.Revision != 1 {
		t.Errorf("Range of an empty store: %+v", r)
	}
	if r := k.put("/a", "1"); r != 2 {
		t.Errorf("first revision is %d, want 2", r)
	}
}

func (su *suite) putGetDelete(t *testing.T) {
	k := su.env(t)
	r1 := k.put("/a", "one")
	k.wantEntry(k.get("/a", 0), "/a", "one", r1, r1)
	r2 := k.put("/a", "two")
	k.wantEntry(k.get("/a", 0), "/a", "two", r2, r1)
	r3 := k.delete("/a")
	if e := k.get("/a", 0); e.ModRevision != 0 {
		t.Errorf("after the deletion: %+v", e)
	}
	r4 := k.put("/a", "")
	k.wantEntry(k.get("/a", 0), "/a", "", r4, r4)
	if !(r1 < r2 && r2 < r3 && r3 < r4) {
		t.Errorf("revisions do not increase: %d %d %d %d", r1, r2, r3, r4)
	}
	k.wantEntry(k.get("/a", r1), "/a", "one", r1, r1)
	k.wantEntry(k.get("/a", r2), "/a", "two", r2, r1)
	if e := k.get("/a", r3); e.ModRevision != 0 {
		t.Errorf("at the deletion: %+v", e)
	}
	big := strings.Repeat("x", 1<<20)
	r5 := k.put("/big", big)
	k.wantEntry(k.get("/big", 0), "/big", big, r5, r5)
}

func (en *env) wantEntry(e storage.Entry, key, value string, mod, create int64) {
	en.t.Helper()
	if e.Key != key || string(e.Value) != value || e.ModRevision != mod || e.CreateRevision != create {
		en.t.Errorf("entry is %.200q, want %q = %.200q at %d created %d", fmt.Sprint(e), key, value, mod, create)
	}
}

func (su *suite) rangeSpans(t *testing.T) {
	k := su.env(t)
	// Some keys are prefixes of others, and some contain bytes before and after '/'.
	keys := []string{
		"!", "/a", "/a!", "/a/", "/a/b", "/a/b/c", "/a0", "/ab", "/b", "/b\x01", "/b\xff", "/b\xff\xff", "/c", "\xff",
		"\xff\xff",
	}
	for i := range keys {
		k.put(keys[(i*7)%len(keys)], "v")
	}
	bounds := append([]string{""}, keys...)
	for _, key := range keys {
		bounds = append(bounds, key+"\x00", storage.PrefixEnd(key))
	}
	for _, start := range bounds {
		for _, end := range bounds {
			var want []string
			for _, key := range keys {
				if key >= start && (end == "" || key < end) {
					want = append(want, key)
				}
			}
			r := k.rangeKeys(storage.RangeRequest{Start: start, End: end})
			if got := keysOf(r.Entries); fmt.Sprint(got) != fmt.Sprint(want) || r.Count != int64(len(want)) || r.More {
				t.Fatalf("Range(%q, %q): %q, count %d, want %q", start, end, got, r.Count, want)
			}
			few := k.rangeKeys(storage.RangeRequest{Start: start, End: end, CountOnly: true, Uncounted: true, Limit: 2})
			if n := int64(len(want)); few.Count != n && (few.Count < 2 || few.Count > n || !few.More) || few.Entries != nil {
				t.Errorf("[%q, %q): %d of %d counted up to 2, more: %v", start, end, few.Count, n, few.More)
			}
			if r := k.rangeKeys(storage.RangeRequest{Start: start, End: end, CountOnly: true}); r.Count != int64(len(want)) ||
				r.Entries != nil {
				t.Fatalf("counting (%q, %q): %d, want %d", start, end, r.Count, len(want))
			}
		}
	}
}

func keysOf(entries []storage.Entry) []string {
	var keys []string
	for _, e := range entries {
		keys = append(keys, e.Key)
	}
	return keys
}

func (su *suite) rangeLimit(t *testing.T) {
	k := su.env(t)
	const n = 50
	for i := range n {
		k.put(fmt.Sprintf("/k/%03d", i), "old")
		k.put(fmt.Sprintf("/k/%03d", i), "new")
		k.put(fmt.Sprintf("/gone/%03d", i), "x")
		k.delete(fmt.Sprintf("/gone/%03d", i))
	}
	at := k.revision()
	k.put("/k/new", "later")
	for _, limit := range []int{1, 7, 49, 50, 51} {
		start, pages, seen := "/k/", 0, 0
		for {
			r := k.rangeKeys(storage.RangeRequest{Start: start, End: storage.PrefixEnd("/k/"), Limit: limit, Revision: at})
			u := k.rangeKeys(
				storage.RangeRequest{Start: start, End: storage.PrefixEnd("/k/"), Limit: limit, Revision: at, Uncounted: true},
			)
			if u.Count > r.Count || u.More != r.More || u.Revision != r.Revision || !reflect.DeepEqual(u.Entries, r.Entries) {
				t.Fatalf("limit %d, page %d: an uncounted range is %+v, a counted one %+v", limit, pages, u, r)
			}
			if r.Count != int64(n-seen) || r.More != (n-seen > limit) || len(r.Entries) != min(limit, n-seen) {
				t.Fatalf("limit %d, page %d: %d entries, count %d, more %v", limit, pages, len(r.Entries), r.Count, r.More)
			}
			for _, e := range r.Entries {
				if want := fmt.Sprintf("/k/%03d", seen); e.Key != want || string(e.Value) != "new" {
					t.Fatalf("limit %d: entry %q, want %q", limit, e.Key, want)
				}
				seen++
			}
			if pages++; !r.More {
				break
			}
			start = r.Entries[len(r.Entries)-1].Key + "\x00"
		}
		if seen != n {
			t.Errorf("limit %d: %d entries in all", limit, seen)
		}
	}
}

// rangeBytes reads a range in pages that are bounded by their bytes. A store may ignore that bound.
func (su *suite) rangeBytes(t *testing.T) {
	k := su.env(t)
	const n, size = 20, 1000
	for i := range n {
		k.put(fmt.Sprintf("/k/%03d", i), strings.Repeat("x", size))
	}
	k.put("/k/gone", strings.Repeat("x", size))
	k.delete("/k/gone")
	for _, bytes := range []int{1, size, size + 1, 5 * size, 100 * size} {
		r := storage.RangeRequest{Start: "/k/", End: storage.PrefixEnd("/k/"), Bytes: bytes, Uncounted: true}
		var seen []storage.Entry
		for {
			page := k.rangeKeys(r)
			seen = append(seen, page.Entries...)
			if len(page.Entries) == 0 {
				t.Fatalf("%d bytes: a page is empty", bytes)
			}
			if !page.More {
				break
			}
			r.Start = page.Entries[len(page.Entries)-1].Key + "\x00"
		}
		if len(seen) != n {
			t.Errorf("%d bytes: %d entries, want %d", bytes, len(seen), n)
		}
	}
}

func (su *suite) rangeOldRevision(t *testing.T) {
	k := su.env(t)
	want := map[int64]string{}
	state := map[string]string{}
	for i := range 60 {
		key := fmt.Sprintf("/k/%d", i*i%11)
		var r int64
		if _, exists := state[key]; exists && i%3 == 0 {
			delete(state, key)
			r = k.delete(key)
		} else {
			state[key] = fmt.Sprint(i)
			r = k.put(key, state[key])
		}
		want[r] = fmt.Sprint(state)
	}
	for r, w := range want {
		got := map[string]string{}
		result := k.rangeKeys(storage.RangeRequest{Start: "/k/", End: "/k0", Revision: r})
		for _, e := range result.Entries {
			got[e.Key] = string(e.Value)
		}
		if fmt.Sprint(got) != w || int(result.Count) != len(got) {
			t.Errorf("at %d: %v, want %v", r, got, w)
		}
	}
}

func (su *suite) errors(t *testing.T) {
	k := su.env(t)
	r := k.put("/a", "1")
	var future *storage.FutureRevisionError
	if _, _, err := k.s.Get(k.ctx, "/a", r+1); !errors.As(err, &future) || future.Revision != r+1 || future.Current != r {
		t.Errorf("Get in the future: %v", err)
	}
	if _, err := k.s.Range(k.ctx, storage.RangeRequest{Revision: r + 5}); !errors.As(err, &future) ||
		future.Revision != r+5 {
		t.Errorf("Range in the future: %v", err)
	}
	if err := k.s.Compact(k.ctx, r+1); !errors.As(err, &future) {
		t.Errorf("Compact in the future: %v", err)
	}
	cancelled, cancel := context.WithCancel(k.ctx)
	cancel()
	if _, _, err := k.s.Get(cancelled, "/a", 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Get with a cancelled context: %v", err)
	}
	if _, err := k.s.Range(cancelled, storage.RangeRequest{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Range with a cancelled context: %v", err)
	}
	if _, err := k.s.Commit(
		cancelled, storage.Txn{Ops: []storage.Op{storage.Put("/b", nil)}},
	); !errors.Is(err, context.Canceled) {
		t.Errorf("Commit with a cancelled context: %v", err)
	}
}

func (su *suite) compact(t *testing.T) {
	k := su.env(t)
	r1 := k.put("/a", "1")
	r2 := k.put("/a", "2")
	r3 := k.put("/b", "1")
	r4 := k.delete("/b")
	r5 := k.put("/a", "3")
	if err := k.s.Compact(k.ctx, r3); err != nil {
		t.Fatal(err)
	}
	for _, r := range []int64{r3, r2, 0} { // the same revision, a lower one, and 0
		if err := k.s.Compact(k.ctx, r); err != nil {
			t.Errorf("Compact(%d): %v", r, err)
		}
	}
	var compacted *storage.CompactedError
	for _, r := range []int64{1, r1, r2} {
		if _, _, err := k.s.Get(k.ctx, "/a", r); !errors.As(err, &compacted) || compacted.Revision != r ||
			compacted.Compacted != r3 {
			t.Errorf("Get at %d: %v", r, err)
		}
		if _, err := k.s.Range(k.ctx, storage.RangeRequest{Revision: r}); !errors.As(err, &compacted) {
			t.Errorf("Range at %d: %v", r, err)
		}
	}
	k.wantEntry(k.get("/a", r3), "/a", "2", r2, r1)
	k.wantEntry(k.get("/b", r3), "/b", "1", r3, r3)
	k.wantEntry(k.get("/a", r4), "/a", "2", r2, r1)
	k.wantEntry(k.get("/a", r5), "/a", "3", r5, r1)
	if err := k.s.Compact(k.ctx, r5); err != nil {
		t.Fatal(err)
	}
	k.wantEntry(k.get("/a", r5), "/a", "3", r5, r1)
	k.wantEntry(k.get("/a", 0), "/a", "3", r5, r1)
	if e := k.get("/b", 0); e.ModRevision != 0 {
		t.Errorf("a deleted key is back: %+v", e)
	}
	if r := k.put("/b", "2"); r != r5+1 {
		t.Errorf("revision after compaction is %d, want %d", r, r5+1)
	}
	if st := k.s.Stats(); st.Revision < r5 || st.CompactedRevision > r5 {
		t.Errorf("Stats: %+v", st)
	}
}
