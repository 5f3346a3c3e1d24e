package embedded

import (
	"slices"
	"strings"
)

// garbage says how many bytes of deleted versions lie where: a list of spans of keys, in
// order and apart from each other, of at most garbageSpans. When there are more, the two
// neighbours with the least garbage become one span. Example, with room for two:
//
//	add("/a", 10), add("/c", 90)   [/a /a] 10, [/c /c] 90
//	add("/d", 5)                   [/a /a] 10, [/c /d] 95
//	add("/b", 5)                   [/a /b] 15, [/c /d] 95
//
// Keys of few bytes of garbage may share a span with much that is no garbage between
// them; who reads the spans compares their garbage with what the database has there.
type garbage struct {
	spans []garbageSpan
	total int64
}

// garbageSpan is the garbage of the versions of the keys from first to last, inclusive.
type garbageSpan struct {
	first, last string
	bytes       int64
}

const garbageSpans = 64

// add adds bytes of garbage that lie between first and last.
func (g *garbage) add(first, last string, bytes int64) {
	g.total += bytes
	// The spans from at to end, exclusive, share keys with the new one.
	at, _ := slices.BinarySearchFunc(g.spans, first, func(s garbageSpan, key string) int {
		return strings.Compare(s.last, key)
	})
	end := at
	for end < len(g.spans) && g.spans[end].first <= last {
		end++
	}
	if at == end {
		g.spans = slices.Insert(g.spans, at, garbageSpan{strings.Clone(first), strings.Clone(last), bytes})
	} else {
		g.join(at, end)
		s := &g.spans[at]
		s.first, s.last, s.bytes = min(s.first, first), max(s.last, last), s.bytes+bytes
	}
	if len(g.spans) > garbageSpans {
		least := 0
		for i := range len(g.spans) - 1 {
			if g.spans[i].bytes+g.spans[i+1].bytes < g.spans[least].bytes+g.spans[least+1].bytes {
				least = i
			}
		}
		g.join(least, least+2)
	}
}

// join makes one span of those from at to end, exclusive; there is at least one.
func (g *garbage) join(at, end int) {
	s := &g.spans[at]
	for _, other := range g.spans[at+1 : end] {
		s.last, s.bytes = other.last, s.bytes+other.bytes
	}
	g.spans = slices.Delete(g.spans, at+1, end)
}

// merge adds what other has.
func (g *garbage) merge(other *garbage) {
	for _, s := range other.spans {
		g.add(s.first, s.last, s.bytes)
	}
}

// shrink scales what is there to a total of bytes, if that is less.
func (g *garbage) shrink(bytes int64) {
	if bytes >= g.total {
		return
	}
	scale := float64(bytes) / float64(g.total)
	g.total = 0
	for i := range g.spans {
		g.spans[i].bytes = int64(float64(g.spans[i].bytes) * scale)
		g.total += g.spans[i].bytes
	}
}
