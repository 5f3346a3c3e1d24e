package declare

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Diff returns the differences between two values of the internal version as a unified diff
// with three lines of context. It is part of messages to clients, so it must be identical to
// kube-apiserver's, which uses the algorithm of Ratcliff and Obershelp: find the longest
// matching block of lines, then do the same to the left and to the right of it.
func Diff(a, b any) string {
	d := differ{a: lines(a), b: lines(b)}
	d.index()
	d.match(0, len(d.a), 0, len(d.b))
	return d.unified()
}

func lines(v any) []string {
	text, err := json.MarshalIndent(Internal(v), "", " ")
	if err != nil {
		return nil
	}
	return strings.Split(string(text), "\n")
}

// differ finds blocks of equal lines.
type differ struct {
	a, b   []string
	places map[string][]int // the positions of b's lines, without frequent lines
	blocks []block          // sorted; adjacent blocks are merged
}

type block struct{ a, b, n int }

// index leaves out the lines that make up more than a hundredth of a long text, because they
// are not useful for finding matches.
func (d *differ) index() {
	d.places = make(map[string][]int, len(d.b))
	for i, line := range d.b {
		d.places[line] = append(d.places[line], i)
	}
	const long = 200
	if n := len(d.b); n >= long {
		for line, places := range d.places {
			if len(places) > n/100+1 {
				delete(d.places, line)
			}
		}
	}
}

// match finds the blocks in a[alo:ahi] and b[blo:bhi]: first the longest one, then those to
// its left and right.
func (d *differ) match(alo, ahi, blo, bhi int) {
	m := d.longest(alo, ahi, blo, bhi)
	if m.n == 0 {
		return
	}
	if alo < m.a && blo < m.b {
		d.match(alo, m.a, blo, m.b)
	}
	if k := len(d.blocks) - 1; k >= 0 && d.blocks[k].a+d.blocks[k].n == m.a && d.blocks[k].b+d.blocks[k].n == m.b {
		d.blocks[k].n += m.n
	} else {
		d.blocks = append(d.blocks, m)
	}
	if m.a+m.n < ahi && m.b+m.n < bhi {
		d.match(m.a+m.n, ahi, m.b+m.n, bhi)
	}
}

func (d *differ) longest(alo, ahi, blo, bhi int) block {
	best := block{a: alo, b: blo}
	ending := map[int]int{} // by position in b: the length of the match that ends there
	for i := alo; i < ahi; i++ {
		next := map[int]int{}
		for _, j := range d.places[d.a[i]] {
			if j < blo {
				continue
			}
			if j >= bhi {
				break
			}
			n := ending[j-1] + 1
			next[j] = n
			if n > best.n {
				best = block{i - n + 1, j - n + 1, n}
			}
		}
		ending = next
	}
	for best.a > alo && best.b > blo && d.a[best.a-1] == d.b[best.b-1] {
		best = block{best.a - 1, best.b - 1, best.n + 1}
	}
	for best.a+best.n < ahi && best.b+best.n < bhi && d.a[best.a+best.n] == d.b[best.b+best.n] {
		best.n++
	}
	return best
}

// unified writes the diff. Changes that are close to each other are in one hunk.
func (d *differ) unified() string {
	const around = 3
	var out strings.Builder
	var hunk []string
	var a0, b0 int // where the hunk starts
	a, b := 0, 0   // everything before these positions is written
	flush := func() {
		if len(hunk) > 0 {
			fmt.Fprintf(&out, "@@ -%s +%s @@\n", hunkRange(a0, a), hunkRange(b0, b))
			out.WriteString(strings.Join(hunk, ""))
		}
		hunk = nil
	}
	add := func(mark string, list []string) {
		for _, line := range list {
			hunk = append(hunk, mark+line+"\n")
		}
	}
	for k, m := range append(d.blocks, block{len(d.a), len(d.b), 0}) {
		if k == 0 && m.a == 0 && m.b == 0 {
			// The equal lines at the start are written together with the first change.
			a, b = m.n, m.n
			continue
		}
		if a == m.a && b == m.b {
			continue
		}
		if len(hunk) == 0 {
			before := min(around, a, b)
			if k == 0 {
				before = 0
			}
			a0, b0 = a-before, b-before
			add(" ", d.a[a0:a])
		}
		add("-", d.a[a:m.a])
		add("+", d.b[b:m.b])
		a, b = m.a, m.b
		last := k == len(d.blocks)
		switch next := m.n; {
		case last:
		case next > 2*around || m.a+m.n == len(d.a) && m.b+m.n == len(d.b):
			after := min(around, next)
			add(" ", d.a[a:a+after])
			a, b = a+after, b+after
			flush()
			a, b = m.a+m.n, m.b+m.n
		default:
			add(" ", d.a[a:a+next])
			a, b = a+next, b+next
		}
	}
	flush()
	return out.String()
}

// hunkRange returns a range of lines as in the header of a hunk.
func hunkRange(from, to int) string {
	switch n := to - from; n {
	case 1:
		return fmt.Sprint(from + 1)
	case 0:
		return fmt.Sprintf("%d,0", from)
	default:
		return fmt.Sprintf("%d,%d", from+1, n)
	}
}
