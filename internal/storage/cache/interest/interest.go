// Package interest finds the cursors that an event matches without evaluating each cursor. For every interest of a
// cursor it has a posting list: the positions of the events in the log that may match. An event is added to the
// lists that the old state of its object matches, and to those that the new state matches. So a cursor also gets
// the event with which an object stops matching.
//
// Example: two cursors have the interest {field 0 = "node1"}, and one has {Namespace "kube-system"}. An event at
// position 7 moves a Pod of the namespace default from node1 to node2. It is added to the posting list of node1, which
// the two cursors share, and to no other list. So only these two cursors wake.
//
// The package is a pure data structure: no lock, clock, goroutine or I/O.
package interest

// Kind is the property by which an interest selects objects. Kinds from 0 on are the indexed fields.
type Kind int

const (
	Namespace Kind = -1 - iota // all objects of a namespace
	Name                       // objects of that name in any namespace
	Object                     // the object with that key
)

// namedKinds is the number of kinds that have a name above.
const namedKinds = 3

// Key identifies an interest.
type Key struct {
	Kind  Kind
	Value string
}

// Subject has the properties of an event that interests select by.
type Subject struct {
	Key, Namespace, Name string
	// Old and New are the values of the indexed fields before and after the event, nil if the object did not exist.
	Old, New []string
	// Unreadable means that the fields before or after are unknown, so the event may match any interest in a field.
	Unreadable bool
}

// Index contains the posting lists. W is the type of the data that the user of the package keeps in each posting.
// The zero value is ready for use.
type Index[W any] struct {
	postings       map[Key]*Posting[W]
	postingsOfKind []int // number of postings of each kind, at kind + namedKinds
}

// Posting is the posting list of one interest.
type Posting[W any] struct {
	User W // data of the user of the package

	key       Key
	users     int
	floor     uint64
	positions []uint64 // ascending
	head      int      // positions[:head] are dropped
}

// Acquire returns the posting of an interest. The posting lists the events from position next on. If the interest
// had a posting already, it may list earlier events too. Release must be called for each call.
func (ind *Index[W]) Acquire(key Key, next uint64) *Posting[W] {
	p := ind.postings[key]
	if p == nil {
		if ind.postings == nil {
			ind.postings = make(map[Key]*Posting[W])
		}
		p = &Posting[W]{key: key, floor: next}
		ind.postings[key] = p
		ind.count(key.Kind, 1)
	}
	p.users++
	return p
}

// Release ends the use of a posting. The posting is removed when its last user has released it.
func (ind *Index[W]) Release(p *Posting[W]) {
	if p.users--; p.users == 0 {
		delete(ind.postings, p.key)
		ind.count(p.key.Kind, -1)
	}
}

// Len returns the number of postings.
func (ind *Index[W]) Len() int { return len(ind.postings) }

// Each calls yield with every posting.
func (ind *Index[W]) Each(yield func(*Posting[W])) {
	for _, p := range ind.postings {
		yield(p)
	}
}

// count changes the number of postings of a kind.
func (ind *Index[W]) count(kind Kind, by int) {
	i := int(kind) + namedKinds
	for len(ind.postingsOfKind) <= i {
		ind.postingsOfKind = append(ind.postingsOfKind, 0)
	}
	ind.postingsOfKind[i] += by
}

// Append adds the event at position to the matching postings, and calls touched once for each of them. position must be
// above all earlier ones.
func (ind *Index[W]) Append(position uint64, s Subject, touched func(*Posting[W])) {
	ind.matching(s, func(p *Posting[W]) {
		p.positions = append(p.positions, position)
		if touched != nil {
			touched(p)
		}
	})
}

// Drop removes the event at position, which must be the oldest one, from the postings.
func (ind *Index[W]) Drop(position uint64, s Subject) {
	ind.matching(s, func(p *Posting[W]) { p.drop(position) })
}

// matching calls yield once for each posting that the event matches.
func (ind *Index[W]) matching(s Subject, yield func(*Posting[W])) {
	ind.visit(Namespace, s.Namespace, yield)
	ind.visit(Name, s.Name, yield)
	ind.visit(Object, s.Key, yield)
	if s.Unreadable {
		for key, p := range ind.postings {
			if key.Kind >= 0 {
				yield(p)
			}
		}
		return
	}
	for i := range max(0, len(ind.postingsOfKind)-namedKinds) {
		if i < len(s.Old) {
			ind.visit(Kind(i), s.Old[i], yield)
		}
		if i < len(s.New) && (i >= len(s.Old) || s.Old[i] != s.New[i]) {
			ind.visit(Kind(i), s.New[i], yield)
		}
	}
}

// visit calls yield with the posting of one interest, if there is one.
func (ind *Index[W]) visit(kind Kind, value string, yield func(*Posting[W])) {
	i := int(kind) + namedKinds
	if i >= len(ind.postingsOfKind) || ind.postingsOfKind[i] == 0 {
		return
	}
	if p := ind.postings[Key{kind, value}]; p != nil {
		yield(p)
	}
}

// Floor returns the first position for which the posting is complete: from there it lists all matching events in the log.
func (p *Posting[W]) Floor() uint64 { return p.floor }

// Since returns the listed positions from position on, in ascending order. The slice is valid until the next change.
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

// drop removes the oldest position if it is position.
func (p *Posting[W]) drop(position uint64) {
	if p.head == len(p.positions) || p.positions[p.head] != position {
		return // the event is older than the posting
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
