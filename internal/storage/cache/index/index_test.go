package index

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

type item struct {
	key    string
	fields []string
}

func itemFields(i *item) []string { return i.fields }

// twin is the simple implementation that a Set is compared with: a map that is sorted when it is read.
type twin map[string]*item

func (t twin) clone() twin {
	c := make(twin, len(t))
	for k, v := range t {
		c[k] = v
	}
	return c
}

func (t twin) list(from, prefix string, keep func(*item) bool) (out []*item) {
	for k, v := range t {
		if k >= from && strings.HasPrefix(k, prefix) && keep(v) {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b *item) int { return strings.Compare(a.key, b.key) })
	return out
}

func everything(*item) bool { return true }

func collect(t Tree[*item], from, prefix string) (out []*item) {
	t.Ascend(from, prefix, func(i *item) bool { out = append(out, i); return true })
	return out
}

// leaves collects values leaf by leaf. It caches the values of each leaf in its LeafCache, and checks that a cached
// value always belongs to the same values.
func leaves(t *testing.T, tree Tree[*item], from, prefix string) (out []*item) {
	t.Helper()
	tree.Leaves(from, prefix, func(values []*item, cache *LeafCache) bool {
		if len(values) == 0 {
			t.Fatal("a leaf without values")
		}
		if cache != nil {
			if cached := cache.LoadOrStore(slices.Clone(values)).([]*item); !slices.Equal(cached, values) {
				t.Fatalf("the LeafCache of a leaf has other values")
			}
		}
		out = append(out, values...)
		return true
	})
	return out
}

// compare compares a set with its twin, as a whole and in parts.
func compare(t *testing.T, s Set[*item], m twin, from, prefix string) {
	t.Helper()
	check := func(what string, tree Tree[*item], keep func(*item) bool) {
		t.Helper()
		for _, span := range [][2]string{{"", ""}, {from, ""}, {"", prefix}, {from, prefix}} {
			want := m.list(span[0], span[1], keep)
			if got := collect(tree, span[0], span[1]); !slices.Equal(got, want) {
				t.Fatalf("%s from %q prefix %q: %d values, want %d", what, span[0], span[1], len(got), len(want))
			}
			if got := leaves(t, tree, span[0], span[1]); !slices.Equal(got, want) {
				t.Fatalf("%s from %q prefix %q: leaves with %d values, want %d", what, span[0], span[1], len(got), len(want))
			}
			if got := tree.Count(span[0], span[1]); got != len(want) {
				t.Fatalf("%s from %q prefix %q: Count %d, want %d", what, span[0], span[1], got, len(want))
			}
		}
		checkNode(t, tree.root, "", "\xff\xff")
	}
	check("all", s.All(), everything)
	if s.All().Len() != len(m) {
		t.Fatalf("Len %d, want %d", s.All().Len(), len(m))
	}
	for i := range s.fields {
		values := make(map[string]bool)
		for _, v := range m {
			if i < len(v.fields) {
				values[v.fields[i]] = true
			}
		}
		if s.FieldValues(i) != len(values) {
			t.Fatalf("index %d has %d values, want %d", i, s.FieldValues(i), len(values))
		}
		for value := range values {
			check(fmt.Sprint("index ", i, " ", value), s.WithField(i, value), func(v *item) bool {
				return i < len(v.fields) && v.fields[i] == value
			})
		}
	}
	for k, v := range m {
		if got, ok := s.All().Get(k); !ok || got != v {
			t.Fatalf("Get(%q) = %v, %v", k, got, ok)
		}
	}
	if _, ok := m[from]; !ok {
		if _, ok := s.All().Get(from); ok {
			t.Fatalf("Get(%q) of what is not there", from)
		}
	}
}

// checkNode verifies the invariants of the tree and returns its height.
func checkNode(t *testing.T, n *node[*item], low, high string) int {
	t.Helper()
	if n == nil {
		return 0
	}
	if len(n.keys) > maxEntries || len(n.keys) == 0 {
		t.Fatalf("node of %d keys", len(n.keys))
	}
	if n.children == nil {
		if n.count != len(n.keys) || len(n.values) != len(n.keys) || !slices.IsSorted(n.keys) || n.keys[0] < low ||
			n.keys[len(n.keys)-1] >= high {
			t.Fatalf("bad leaf %q in [%q, %q), count %d", n.keys, low, high, n.count)
		}
		return 1
	}
	total, height := 0, 0
	for i, kid := range n.children {
		from, to := low, high
		if i > 0 {
			from = n.keys[i]
		}
		if i+1 < len(n.children) {
			to = n.keys[i+1]
		}
		h := checkNode(t, kid, from, to)
		if i > 0 && h != height {
			t.Fatalf("leaves at different depths")
		}
		height = h
		total += kid.count
	}
	if total != n.count {
		t.Fatalf("count %d, want %d", n.count, total)
	}
	return height + 1
}

// play runs a sequence of operations on a set and its twin. Earlier sets must not change.
func play(t *testing.T, script []byte) {
	type moment struct {
		set  Set[*item]
		twin twin
	}
	now := moment{NewSet(2, itemFields), twin{}}
	var past []moment
	next := func() byte {
		if len(script) == 0 {
			return 0
		}
		b := script[0]
		script = script[1:]
		return b
	}
	key := func() string {
		b := next()
		return fmt.Sprintf("ns%d/o%03d", b%3, int(b)*int(next()%8))
	}
	for len(script) > 0 {
		base := now
		if b := next(); b%16 == 0 && len(past) > 0 { // a branch from an old state
			base = past[int(b)%len(past)]
		}
		edit, m := base.set.Edit(), base.twin.clone()
		for range 1 + next()%64 {
			k := key()
			if b := next(); b%3 == 0 {
				old, ok := edit.Delete(k)
				if want, there := m[k]; ok != there || old != want {
					t.Fatalf("Delete(%q) = %v, %v, want %v, %v", k, old, ok, want, there)
				}
				delete(m, k)
			} else {
				v := &item{k, []string{fmt.Sprint("v", b%5), "same"}}
				if b%7 == 0 {
					v.fields = v.fields[:b%2]
				}
				old, ok := edit.Put(k, v)
				if want, there := m[k]; ok != there || old != want {
					t.Fatalf("Put(%q) = %v, %v, want %v, %v", k, old, ok, want, there)
				}
				m[k] = v
			}
		}
		now = moment{edit.Done(), m}
		compare(t, now.set, now.twin, key(), fmt.Sprintf("ns%d/o%d", next()%3, next()%10))
		past = append(past, now)
	}
	for _, p := range past {
		compare(t, p.set, p.twin, "ns1/", "ns2/")
	}
}

func TestSetAgainstMap(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		script := make([]byte, 3000)
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		play(t, script)
	}
}

func FuzzSet(f *testing.F) {
	f.Add([]byte("an edit, another, and one more that removes"))
	f.Add([]byte{0, 63, 1, 2, 1, 3, 3, 3, 3, 9, 9, 9, 16, 16, 5, 1, 1, 1})
	f.Fuzz(func(t *testing.T, script []byte) { play(t, script[:min(len(script), 2000)]) })
}

// TestShapes inserts and removes keys in orders that random operations rarely have.
func TestShapes(t *testing.T) {
	const n = 5000
	orders := map[string]func(i int) int{
		"ascending":  func(i int) int { return i },
		"descending": func(i int) int { return n - 1 - i },
		"inward":     func(i int) int { return i/2 + (i%2)*(n-1-i) },
		"scattered":  func(i int) int { return i * 2741 % n },
	}
	for name, order := range orders {
		t.Run(name, func(t *testing.T) {
			edit := NewSet(0, itemFields).Edit()
			m := twin{}
			for i := range n {
				v := &item{key: fmt.Sprintf("k%05d", order(i))}
				edit.Put(v.key, v)
				m[v.key] = v
			}
			s := edit.Done()
			compare(t, s, m, "k02500", "k03")
			leaves, full := 0, 0
			countLeaves(s.all.root, &leaves, &full)
			if leaves*maxEntries > 3*n {
				t.Errorf("%d leaves for %d values", leaves, n)
			}
			edit = s.Edit()
			for i := range n {
				k := fmt.Sprintf("k%05d", order(n-1-i))
				if i%500 == 0 {
					s = edit.Done()
					compare(t, s, m, "k02500", "k03")
					edit = s.Edit()
				}
				edit.Delete(k)
				delete(m, k)
			}
			if s = edit.Done(); s.All().Len() != 0 || s.all.root != nil {
				t.Errorf("%d left", s.All().Len())
			}
		})
	}
}

func countLeaves(n *node[*item], leaves, full *int) {
	if n.children == nil {
		*leaves++
		if len(n.keys) == maxEntries {
			*full++
		}
	}
	for _, kid := range n.children {
		countLeaves(kid, leaves, full)
	}
}

func TestAscendStops(t *testing.T) {
	edit := NewSet(0, itemFields).Edit()
	for i := range 1000 {
		v := &item{key: fmt.Sprintf("k%05d", i)}
		edit.Put(v.key, v)
	}
	seen := 0
	edit.Done().All().Ascend("k00100", "k", func(*item) bool { seen++; return seen < 70 })
	if seen != 70 {
		t.Errorf("saw %d", seen)
	}
}

func benchSet(n int) Set[*item] {
	edit := NewSet(1, itemFields).Edit()
	for i := range n {
		v := &item{key: fmt.Sprintf("default/object-%07d", i), fields: []string{fmt.Sprint("node-", i%1000)}}
		edit.Put(v.key, v)
	}
	return edit.Done()
}

func BenchmarkGet(b *testing.B) {
	s := benchSet(100_000)
	keys := make([]string, 4096)
	for i := range keys {
		keys[i] = fmt.Sprintf("default/object-%07d", i*7919%100_000)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, ok := s.All().Get(keys[i%len(keys)]); !ok {
			b.Fatal("missing")
		}
	}
}

func BenchmarkPut(b *testing.B) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := benchSet(n)
			var all []*item
			s.All().Ascend("", "", func(i *item) bool { all = append(all, i); return true })
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				v := all[i*7919%n]
				edit := s.Edit()
				edit.Put(v.key, v)
				s = edit.Done()
			}
		})
	}
}
