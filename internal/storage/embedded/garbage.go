package embedded

import (
	"slices"
	"strings"
)

// garbage records how many bytes of deleted versions lie in which parts of the key space: It is a sorted list of
// at most maxGarbageSpans spans of keys that do not overlap. When there are more spans, the two neighbours with
// the least garbage are joined into one. Example, with a limit of two spans:
//
//	add("/a", 10), add("/c", 90)   [/a /a] 10, [/c /c] 90
//	add("/d", 5)                   [/a /a] 10, [/c /d] 95
//	add("/b", 5)                   [/a /b] 15, [/c /d] 95
//
// A joined span may contain keys without garbage between its two ends. Therefore the caller compares the garbage
// of a span with the size of the span in the database.
type garbage struct {
	spans []garbageSpan
	total int64
}

// garbageSpan is the garbage of the versions of the keys from first to last, both inclusive.
type garbageSpan struct {
	first, last string
	bytes       int64
}

const maxGarbageSpans = 64

// add adds bytes of garbage in the span from first to last.
func (g *garbage) add(first, last string, bytes int64) {
	g.total += bytes
	// The spans in [at, end) overlap the new one.
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
		g.joinSpans(at, end)
		s := &g.spans[at]
		s.first, s.last, s.bytes = min(s.first, first), max(s.last, last), s.bytes+bytes
	}
	if len(g.spans) > maxGarbageSpans {
		least := 0
		for i := range len(g.spans) - 1 {
			if g.spans[i].bytes+g.spans[i+1].bytes < g.spans[least].bytes+g.spans[least+1].bytes {
				least = i
			}
		}
		g.joinSpans(least, least+2)
	}
}

// joinSpans replaces the spans in [at, end), at least one, by one span.
func (g *garbage) joinSpans(at, end int) {
	s := &g.spans[at]
	for _, other := range g.spans[at+1 : end] {
		s.last, s.bytes = other.last, s.bytes+other.bytes
	}
	g.spans = slices.Delete(g.spans, at+1, end)
}

// addAll adds all spans of other.
func (g *garbage) addAll(other *garbage) {
	for _, s := range other.spans {
		g.add(s.first, s.last, s.bytes)
	}
}

// scaleDown reduces the bytes of all spans in proportion, so that the total is at most bytes.
func (g *garbage) scaleDown(bytes int64) {
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
