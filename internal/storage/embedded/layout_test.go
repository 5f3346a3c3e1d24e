package embedded

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/storage"
)

func TestVersionKeyOrder(t *testing.T) {
	type kv struct {
		key      string
		revision int64
	}
	keys := []string{"\x01", "/", "/a", "/a\x01", "/a\xff", "/aa", "/b", "\xff", "\xff\xff"}
	var list []kv
	for _, k := range keys {
		for _, r := range []int64{1, 2, 255, 256, 1 << 40, maxRevision} {
			list = append(list, kv{k, r})
		}
	}
	want := slices.Clone(list)
	slices.SortFunc(want, func(a, b kv) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(b.revision, a.revision))
	})
	slices.SortFunc(list, func(a, b kv) int {
		return comparer.Compare(appendVersionKey(nil, a.key, a.revision), appendVersionKey(nil, b.key, b.revision))
	})
	if !slices.Equal(list, want) {
		t.Errorf("order %v, want %v", list, want)
	}
}

func FuzzVersion(f *testing.F) {
	f.Add([]byte("v/a\x00\xff\xff\xff\xff\xff\xff\xff\xfe"), []byte("\x00\x02value"))
	f.Add([]byte("v/a\x00\xff\xff\xff\xff\xff\xff\xff\xfe"), []byte("\x03\x02\x80\x01value"))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if k, revision, err := splitVersionKey(key); err == nil && validateKey(string(k)) == nil {
			if again := appendVersionKey(nil, string(k), revision); !bytes.Equal(again, key) {
				t.Errorf("key %q becomes %q", key, again)
			}
			into := make([]byte, versionKeySize(string(k)))
			if putVersionKey(into, string(k), revision); !bytes.Equal(into, key) {
				t.Errorf("key %q becomes %q", key, into)
			}
		}
		v, err := decodeVersion(value, 7)
		if err != nil {
			return
		}
		b := make([]byte, v.size())
		v.encode(b)
		again, err := decodeVersion(b, 7)
		if err != nil || again.create != v.create || again.deadline != v.deadline || again.tombstone != v.tombstone ||
			!bytes.Equal(again.value, v.value) {
			t.Errorf("%+v becomes %+v, %v", v, again, err)
		}
	})
}

func FuzzLog(f *testing.F) {
	f.Add(
		appendLogOp(
			appendLogOp(nil, logOp{key: "/a", prev: 300}),
			logOp{key: "/b", deleted: true, prev: 2, prevSize: 1 << 20},
		),
	)
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		err := decodeLog(b, func(key []byte, op logOp) error {
			op.key = string(key)
			again = appendLogOp(again, op)
			return nil
		})
		if err != nil {
			return
		}
		n := 0
		if err := decodeLog(again, func([]byte, logOp) error { n++; return nil }); err != nil {
			t.Errorf("%q becomes %q: %v", b, again, err)
		}
	})
}

func FuzzSmallRecords(f *testing.F) {
	f.Add(appendExpiryKey(nil, 12345, "/a"))
	f.Add(logKey(7))
	f.Add(encodeNumber(7))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, key, err := parseExpiryKey(b); err == nil && !bytes.Equal(appendExpiryKey(nil, d, string(key)), b) {
			t.Errorf("expiry key %q", b)
		}
		if r, err := parseLogKey(b); err == nil && !bytes.Equal(logKey(r), b) {
			t.Errorf("log key %q", b)
		}
		if n, err := decodeNumber(b); err == nil && !bytes.Equal(encodeNumber(n), b) {
			t.Errorf("number %q", b)
		}
	})
}

// FuzzSplit checks a requirement of Pebble for a split: the order of prefixes must agree with the order of keys.
func FuzzSplit(f *testing.F) {
	f.Add([]byte("v/a\x00\xff"), []byte("v/a\x00"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		pa, pb := a[:splitKey(a)], b[:splitKey(b)]
		if bytes.Compare(a, b) <= 0 && bytes.Compare(pa, pb) > 0 {
			t.Errorf("%q <= %q, but their prefixes not", a, b)
		}
		if bytes.Compare(pa, pb) < 0 && bytes.Compare(a, b) >= 0 {
			t.Errorf("prefixes of %q < %q, but they are not", a, b)
		}
		next := nextPrefix(nil, pa)
		if splitKey(next) != len(next) || bytes.Compare(pa, next) >= 0 {
			t.Errorf("prefix %q is followed by %q", pa, next)
		}
		if bytes.Compare(pa, pb) < 0 && bytes.Compare(pb, next) < 0 {
			t.Errorf("prefix %q is followed by %q, but %q is between", pa, next, pb)
		}
	})
}

// TestRing compares the ring with a list of all records.
func TestRing(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const limit = 20_000
	r := newRing(limit, 100)
	var all []*record
	for next := int64(100); next < int64(effort.Rounds(3000, 700)); next++ {
		rec := &record{revision: next}
		for i := range rng.IntN(4) {
			key := fmt.Sprintf("/%c/%d", 'a'+rng.IntN(3), i)
			rec.events = append(
				rec.events, storage.Event{Entry: storage.Entry{Key: key, Value: make([]byte, rng.IntN(1000)), ModRevision: next}},
			)
		}
		all = append(all, rec)
		r.append(rec)
		kept, size := r.from(r.first()), 0
		for _, k := range kept {
			size += k.size()
		}
		if size != r.bytes || size > limit && len(kept) > 1 {
			t.Fatalf("%d bytes kept in %d records, the ring says %d", size, len(kept), r.bytes)
		}
		if waste := cap(r.records) + r.dropped - 3*len(r.records); waste > 256 {
			t.Fatalf("%d records dead, %d alive, room for %d", r.dropped, len(r.records), cap(r.records))
		}
		from := r.first() + rng.Int64N(next+2-r.first())
		prefix := []string{"", "/a/", "/b/1", "/x"}[rng.IntN(4)]
		b := collect(r.from(from), prefix)
		var want []storage.Event
		for _, rec := range all[from-100:] {
			for _, e := range rec.events {
				if len(e.Entry.Key) >= len(prefix) && e.Entry.Key[:len(prefix)] == prefix {
					want = append(want, e)
				}
			}
		}
		if fmt.Sprint(b.Events) != fmt.Sprint(want) || from <= next && b.Revision != next {
			t.Fatalf(
				"from %d, prefix %q: %d events to %d, want %d to %d", from, prefix, len(b.Events), b.Revision, len(want), next,
			)
		}
	}
}
