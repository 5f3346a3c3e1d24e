// Package interest finds those whom an event concerns without asking each of
// them. For every interest that somebody has it keeps a posting list: the
// positions, in the resource's log, of the events that may match. An event is
// entered under its object's old and its new state, so that one that leaves an
// interest is found there too.
//
// The package is a pure data structure: no lock, clock, goroutine or I/O.
package interest

// Kind says by what an interest selects. Kinds from 0 on are the indexed fields.
type Kind int

const (
	Namespace Kind = -1 - iota // all objects of a namespace
	Name                       // objects of that name in any namespace
	Object                     // the object with that key
)

const namedKinds = 3

// Key names an interest.
type Key struct {
	Kind  Kind
	Value string
}

// Subject is what an event is about.
type Subject struct {
	Key, Namespace, Name string
	// Old and New are the values of the indexed fields before and after; nil
	// where the object did not exist.
	Old, New []string
	// Unknown says that the values before or after could not be read: the event
	// may concern any interest by a field.
	Unreadable bool
}

// Index holds the posting lists. W is what the user keeps with each of them. The
// zero value is ready for use.
type Index[W any] struct {
	postings       map[Key]*Posting[W]
	postingsOfKind []int // how many postings there are of each kind
}

// Posting is the list of one interest.
type Posting[W any] struct {
	User W // the user's

	key       Key
	users     int
	floor     uint64
	positions []uint64 // ascending
	head      int      // positions before it are gone
}

// Acquire returns the posting of an interest; it lists what is entered from
// position next on, or more if somebody else had it already. Each call wants a
// Release.
func (x *Index[W]) Acquire(key Key, next uint64) *Posting[W] {
	p := x.postings[key]
	if p == nil {
		if x.postings == nil {
			x.postings = make(map[Key]*Posting[W])
		}
		p = &Posting[W]{key: key, floor: next}
		x.postings[key] = p
		x.count(key.Kind, 1)
	}
	p.users++
	return p
}

// Release gives a posting back; the last one to do so removes it.
func (x *Index[W]) Release(p *Posting[W]) {
	if p.users--; p.users == 0 {
		delete(x.postings, p.key)
		x.count(p.key.Kind, -1)
	}
}

// Len is the number of postings.
func (x *Index[W]) Len() int { return len(x.postings) }

// Each calls yield with every posting.
func (x *Index[W]) Each(yield func(*Posting[W])) {
	for _, p := range x.postings {
		yield(p)
	}
}

func (x *Index[W]) count(kind Kind, by int) {
	i := int(kind) + namedKinds
	for len(x.postingsOfKind) <= i {
		x.postingsOfKind = append(x.postingsOfKind, 0)
	}
	x.postingsOfKind[i] += by
}

// Append enters the event at position, which is above all before it, in the
// postings it concerns, and calls touched with each of them once.
func (x *Index[W]) Append(position uint64, s Subject, touched func(*Posting[W])) {
	x.matching(s, func(p *Posting[W]) {
		p.positions = append(p.positions, position)
		if touched != nil {
			touched(p)
		}
	})
}

// Drop takes the event at position, the oldest one, out of the postings again.
func (x *Index[W]) Drop(position uint64, s Subject) {
	x.matching(s, func(p *Posting[W]) { p.drop(position) })
}

// each calls yield once with every posting that the subject concerns.
func (x *Index[W]) matching(s Subject, yield func(*Posting[W])) {
	x.visit(Namespace, s.Namespace, yield)
	x.visit(Name, s.Name, yield)
	x.visit(Object, s.Key, yield)
	if s.Unreadable {
		for key, p := range x.postings {
			if key.Kind >= 0 {
				yield(p)
			}
		}
		return
	}
	for i := range max(0, len(x.postingsOfKind)-namedKinds) {
		if i < len(s.Old) {
			x.visit(Kind(i), s.Old[i], yield)
		}
		if i < len(s.New) && (i >= len(s.Old) || s.Old[i] != s.New[i]) {
			x.visit(Kind(i), s.New[i], yield)
		}
	}
}

func (x *Index[W]) visit(kind Kind, value string, yield func(*Posting[W])) {
	i := int(kind) + namedKinds
	if i >= len(x.postingsOfKind) || x.postingsOfKind[i] == 0 {
		return
	}
	if p := x.postings[Key{kind, value}]; p != nil {
		yield(p)
	}
}

// Floor is the position from which on the posting is complete: every event there
// that concerns the interest is listed, as long as it is in the log.
func (p *Posting[W]) Floor() uint64 { return p.floor }

// Since returns the listed positions at or above position, in order. The slice is
// valid until the next change.
func (p *Posting[W]) Since(position uint64) []uint64 {
	live := p.positions[p.head:]
	if n := len(live); n == 0 || live[n-1] < position {
		return nil
	}
	low, high := 0, len(live)
	for low < high {
		mid := (low + high) / 2
		if live[mid] < position {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return live[low:]
}

func (p *Posting[W]) drop(position uint64) {
	if p.head == len(p.positions) || p.positions[p.head] != position {
		return // from before the posting was made
	}
	p.floor = max(p.floor, position+1)
	p.head++
	switch {
	case p.head == len(p.positions):
		p.positions, p.head = nil, 0
	case p.head >= 32 && p.head*2 >= len(p.positions):
		p.positions = append([]uint64(nil), p.positions[p.head:]...)
		p.head = 0
	}
}
