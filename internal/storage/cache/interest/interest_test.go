package interest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// concerns reports whether the old or the new state of an event matches an interest.
func concerns(k Key, s Subject) bool {
	switch k.Kind {
	case Namespace:
		return k.Value == s.Namespace
	case Name:
		return k.Value == s.Name
	case Object:
		return k.Value == s.Key
	}
	has := func(fields []string) bool { return int(k.Kind) < len(fields) && fields[k.Kind] == k.Value }
	return s.Unreadable || has(s.Old) || has(s.New)
}

type holder struct {
	key     Key
	posting *Posting[int]
	since   uint64
}

// play adds and drops events while interests come and go, and compares every posting with a search in all events.
func play(t *testing.T, script []byte) {
	var x Index[int]
	var events []Subject
	first := 0
	var holders []holder
	for len(script) >= 4 {
		a, b, c, d := script[0], script[1], script[2], script[3]
		script = script[4:]
		value := func(n byte) string { return fmt.Sprint("v", n%3) }
		switch a % 8 {
		case 0, 1:
			k := Key{Kind(int(b%5) - namedKinds), value(c)}
			if k.Kind == Object {
				k.Value = value(c) + "/" + value(d)
			}
			holders = append(holders, holder{k, x.Acquire(k, uint64(len(events))), uint64(len(events))})
		case 2:
			if len(holders) > 0 {
				i := int(b) % len(holders)
				x.Release(holders[i].posting)
				holders = slices.Delete(holders, i, i+1)
			}
		case 3, 4:
			for range b % 8 {
				if first < len(events) {
					x.Drop(uint64(first), events[first])
					first++
				}
			}
		default:
			s := Subject{Key: value(b) + "/" + value(c), Namespace: value(b), Name: value(c)}
			if d&1 == 0 {
				s.Old = []string{value(d >> 2), value(d >> 4)}
			}
			if d&2 == 0 || s.Old == nil {
				s.New = []string{value(d >> 3), value(d >> 5)}[:1+d>>7]
			}
			s.Unreadable = a >= 224
			var touched []*Posting[int]
			x.Append(uint64(len(events)), s, func(p *Posting[int]) { touched = append(touched, p) })
			for _, h := range holders {
				n := 0
				for _, p := range touched {
					if p == h.posting {
						n++
					}
				}
				if want := concerns(h.key, s); n > 1 || (n == 1) != want {
					t.Fatalf("%v touched %d times by %+v, want %v", h.key, n, s, want)
				}
			}
			events = append(events, s)
		}
		distinct := make(map[Key]bool)
		for _, h := range holders {
			distinct[h.key] = true
			// The user wants all events since it acquired the posting
			var want []uint64
			lost := uint64(0)
			for p := h.since; p < uint64(len(events)); p++ {
				if concerns(h.key, events[p]) {
					if p < uint64(first) {
						lost = p + 1
					} else {
						want = append(want, p)
					}
				}
			}
			if lost > h.since != (h.posting.Floor() > h.since) {
				t.Fatalf("%v since %d: floor %d, lost below %d", h.key, h.since, h.posting.Floor(), lost)
			}
			if got := h.posting.Since(h.since); !slices.Equal(got, want) {
				t.Fatalf("%v since %d: %v, want %v", h.key, h.since, got, want)
			}
		}
		if x.Len() != len(distinct) {
			t.Fatalf("%d postings, want %d", x.Len(), len(distinct))
		}
	}
}

func TestIndexAgainstWalk(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		script := make([]byte, 1200)
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		play(t, script)
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte("acquire, append, drop, release and so on"))
	f.Fuzz(func(t *testing.T, script []byte) { play(t, script[:min(len(script), 2000)]) })
}

// BenchmarkAppend shows that the cost of an event does not depend on the number of interests that it does not match.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var x Index[int]
			for i := range n {
				x.Acquire(Key{0, fmt.Sprint("node-", i)}, 0)
			}
			s := Subject{Key: "a/b", Namespace: "a", Name: "b", Old: []string{"node-3"}, New: []string{"node-3"}}
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				x.Append(i, s, nil)
				if i >= 100 {
					x.Drop(i-100, s)
				}
			}
		})
	}
}
