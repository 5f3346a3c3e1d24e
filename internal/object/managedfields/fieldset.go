package managedfields

import (
	"cmp"
	"slices"
	"strings"
)

// A set is a set of field paths. It is a tree by the steps of the paths, as fieldsV1 are. Sets are not changed once
// they are built, and share parts with one another.
type set struct {
	// items are in the order in which fieldsV1 list them.
	items []item
}

// An item is one step of the paths of a set.
type item struct {
	step step
	// member reports whether the path that ends here is in the set. sub has the longer paths; it is nil if there are
	// none.
	member bool
	sub    *set
}

// A step is one element of a path.
type step struct {
	kind stepKind
	// name is the name of a field.
	name string
	// parts are the key fields of a list item with their names. An item of a set has one part, without a name.
	parts []part
}

type stepKind uint8

// The kinds in the order in which they sort.
const (
	fieldStep stepKind = iota
	keyStep
	valueStep
)

// A part is a key field of a list item with its value, or the value of an item of a set.
type part struct {
	name string
	kind partKind
	text string
	num  int64
}

type partKind uint8

// The kinds in the order in which they sort. Numbers with fractions are left to the general algorithm.
const (
	numPart partKind = iota
	textPart
	boolPart
)

func (p part) compare(q part) int {
	if c := strings.Compare(p.name, q.name); c != 0 {
		return c
	}
	if c := cmp.Compare(p.kind, q.kind); c != 0 {
		return c
	}
	if p.kind == textPart {
		return strings.Compare(p.text, q.text)
	}
	return cmp.Compare(p.num, q.num)
}

func (s *step) compare(t *step) int {
	if c := cmp.Compare(s.kind, t.kind); c != 0 {
		return c
	}
	if s.kind == fieldStep {
		return strings.Compare(s.name, t.name)
	}
	return compareParts(s.parts, t.parts)
}

func compareParts(p, q []part) int {
	for i := range min(len(p), len(q)) {
		if c := p[i].compare(q[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(p), len(q))
}

// find returns the index of the step, or the index to insert it at and false.
func (s *set) find(t *step) (int, bool) {
	n := len(s.items)
	if n == 0 {
		return 0, false
	}
	// Sets are mostly built in order.
	switch c := s.items[n-1].step.compare(t); {
	case c < 0:
		return n, false
	case c == 0:
		return n - 1, true
	}
	lo, hi := 0, n-1
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := s.items[mid].step.compare(t); {
		case c == 0:
			return mid, true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false
}

// at returns the item of the step; it adds a missing one. It is only used to build s.
func (s *set) at(t *step) *item {
	i, found := s.find(t)
	if !found {
		if s.items == nil {
			s.items = make([]item, 0, 4)
		}
		if i == len(s.items) {
			s.items = append(s.items, item{step: *t})
		} else {
			s.items = slices.Insert(s.items, i, item{step: *t})
		}
	}
	return &s.items[i]
}

func (s *set) empty() bool { return s == nil || len(s.items) == 0 }

// contains reports whether every path of t is in s.
func (s *set) contains(t *set) bool {
	if t.empty() || s == t {
		return true
	}
	if s.empty() {
		return false
	}
	i := 0
	for j := range t.items {
		want := &t.items[j]
		for i < len(s.items) && s.items[i].step.compare(&want.step) < 0 {
			i++
		}
		if i == len(s.items) || s.items[i].step.compare(&want.step) != 0 {
			return false
		}
		if want.member && !s.items[i].member || !s.items[i].sub.contains(want.sub) {
			return false
		}
	}
	return true
}

// intersects reports whether a path is in both s and t.
func (s *set) intersects(t *set) bool {
	if s.empty() || t.empty() {
		return false
	}
	i, j := 0, 0
	for i < len(s.items) && j < len(t.items) {
		a, b := &s.items[i], &t.items[j]
		switch c := a.step.compare(&b.step); {
		case c < 0:
			i++
		case c > 0:
			j++
		default:
			if a.member && b.member || a.sub.intersects(b.sub) {
				return true
			}
			i++
			j++
		}
	}
	return false
}

// difference returns the paths of s that are not in t. It returns s itself, not a copy, if no path of t is in s.
func (s *set) difference(t *set) *set {
	if !s.intersects(t) {
		return s
	}
	out := &set{items: make([]item, 0, len(s.items))}
	j := 0
	for i := range s.items {
		kept := s.items[i]
		for j < len(t.items) && t.items[j].step.compare(&kept.step) < 0 {
			j++
		}
		if j < len(t.items) && t.items[j].step.compare(&kept.step) == 0 {
			kept.member = kept.member && !t.items[j].member
			kept.sub = kept.sub.difference(t.items[j].sub)
		}
		if kept.member || !kept.sub.empty() {
			out.items = append(out.items, kept)
		}
	}
	if len(out.items) == 0 {
		return nil
	}
	return out
}

// union returns the paths that are in s or t. It returns s itself, not a copy, if s has all paths of t.
func (s *set) union(t *set) *set {
	switch {
	case s.contains(t):
		return s
	case s.empty():
		return t
	}
	out := &set{items: make([]item, 0, len(s.items)+len(t.items))}
	i, j := 0, 0
	for i < len(s.items) && j < len(t.items) {
		a, b := s.items[i], t.items[j]
		switch c := a.step.compare(&b.step); {
		case c < 0:
			out.items = append(out.items, a)
			i++
		case c > 0:
			out.items = append(out.items, b)
			j++
		default:
			out.items = append(out.items, item{step: a.step, member: a.member || b.member, sub: a.sub.union(b.sub)})
			i++
			j++
		}
	}
	out.items = append(out.items, s.items[i:]...)
	out.items = append(out.items, t.items[j:]...)
	return out
}

// without returns s without the reset fields and all fields below them.
func (s *set) without(reset *set) *set {
	if s.empty() || reset.empty() {
		return s
	}
	out := &set{}
	for i := range s.items {
		kept := s.items[i]
		if j, found := reset.find(&kept.step); found {
			if reset.items[j].member {
				continue
			}
			kept.sub = kept.sub.without(reset.items[j].sub)
		}
		if kept.member || !kept.sub.empty() {
			out.items = append(out.items, kept)
		}
	}
	if len(out.items) == 0 {
		return nil
	}
	return out
}

// has reports whether a field of the root is in the set.
func (s *set) has(name string) bool {
	if s == nil {
		return false
	}
	i, found := s.find(&step{kind: fieldStep, name: name})
	return found && s.items[i].member
}

// setOfPaths returns the set of paths that are given as field names with dots between them.
func setOfPaths(paths ...string) *set {
	out := &set{}
	for _, path := range paths {
		s := out
		names := strings.Split(path, ".")
		for i, name := range names {
			it := s.at(&step{kind: fieldStep, name: name})
			if i == len(names)-1 {
				it.member = true
			} else if it.sub == nil {
				it.sub = &set{}
			}
			s = it.sub
		}
	}
	return out
}
