package managedfields

import (
	"reflect"
	"slices"
)

// A merge merges an applied configuration into a copy of the live object, in place. It records the fields that it
// changes in the sets of its walk, which are the same as those of a comparison of the two objects.
//
// The result is exactly that of the general algorithm, or the merge fails:
//   - A value that is owned as one (a scalar, an atomic map or list) is replaced by that of the configuration.
//   - In other maps and lists, the items of the configuration are merged one by one. A map or list that is
//     empty or null in the configuration changes nothing, unless it is also empty or absent in the object.
//   - Items of lists get the order that arrange gives them.
type merge struct {
	*walk
	// reordered means that a list has the same items as before in another order.
	reordered bool
	// hidden means that a value was set that the JSON of a Go type omits: null, or a value with omitempty. Then it is
	// not known which structs the general algorithm considers empty.
	hidden bool
	// emptyOverItems means that an empty or null value was merged into one that has items.
	emptyOverItems bool
}

// value merges c into the value v of an object, which is settable. has reports whether the JSON of the object contains
// v.
func (m *merge) value(p *plan, v reflect.Value, has bool, c any) {
	if m.failed {
		return
	}
	switch p.mode {
	case leafMode:
		m.leaf(p, v, has, c)
	case structMode:
		m.structs(p, v, has, c)
	case mapMode:
		m.maps(p, v, has, c)
	case keyedMode, setMode:
		m.lists(p, v, has, c)
	default:
		m.failed = true
	}
}

// leaf merges a value that is owned as one.
func (m *merge) leaf(p *plan, v reflect.Value, has bool, c any) {
	switch {
	case !has:
		m.add(changed)
	case m.equal(p.typ, v, c):
		return
	default:
		m.add(changed)
	}
	m.assign(p.typ, v, c)
}

// empty merges an empty or null value into one that may have items.
func (m *merge) empty(p *plan, v reflect.Value, has, hasItems bool, c any) {
	if m.replaces(has && hasItems, has && isNil(v) == (c == nil)) {
		m.assign(p.typ, v, c)
	}
}

// replaces reports whether an empty or null value replaces one that may have items, and records it. same means that
// both are empty or both null.
func (m *merge) replaces(hasItems, same bool) bool {
	switch {
	case hasItems:
		m.emptyOverItems = true
		return false
	case same:
		return false
	}
	m.add(changed)
	return true
}

// addAll merges c into an absent or empty value, so that all fields of c are added.
func (m *merge) addAll(p *plan, v reflect.Value, has bool, c any) {
	m.trees(p.shape, tree{here: has}, tree{c, true})
	m.assign(p.typ, v, c)
}

// structs merges maps that are Go structs.
func (m *merge) structs(p *plan, v reflect.Value, has bool, c any) {
	members, _ := c.(map[string]any)
	if len(members) == 0 {
		m.empty(p, v, has, has && !isNil(v) && p.shown(deref(v)) > 0, c)
		return
	}
	if !has || isNil(v) {
		m.addAll(p, v, has, c)
		return
	}
	v = deref(v)
	found := 0
	for i := range p.fields {
		f := &p.fields[i]
		below, sent := members[f.name]
		if !sent {
			continue
		}
		found++
		if f.plan == nil {
			m.failed = true
			return
		}
		inner, hasInner := f.of(v)
		if !inner.CanSet() {
			m.failed = true // the field is in an embedded struct whose pointer is nil
			return
		}
		m.pushField(f.name)
		m.value(f.plan, inner, hasInner, below)
		m.pop()
		if _, shown := f.of(v); !shown {
			m.hidden = true
		}
		if found == len(members) {
			return
		}
	}
	m.failed = true // the Go type does not have all fields of the schema
}

// shown counts the fields of a struct that its JSON contains.
func (p *plan) shown(v reflect.Value) int {
	n := 0
	for i := range p.fields {
		if _, has := p.fields[i].of(v); has {
			n++
		}
	}
	return n
}

// maps merges maps that are Go maps.
func (m *merge) maps(p *plan, v reflect.Value, has bool, c any) {
	members, _ := c.(map[string]any)
	switch {
	case len(members) == 0:
		m.empty(p, v, has, v.Len() > 0, c)
		return
	case v.Len() == 0:
		m.addAll(p, v, has, c)
		return
	}
	names := make([]string, 0, len(members)) // not in a function: a short slice stays on the stack
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	element := reflect.New(p.element.typ.typ).Elem()
	for _, name := range names {
		key := reflect.ValueOf(name)
		if p.typ.typ.Key() != key.Type() {
			key = key.Convert(p.typ.typ.Key())
		}
		old := v.MapIndex(key)
		if old.IsValid() {
			element.Set(old)
		} else {
			element.SetZero()
		}
		m.pushField(name)
		if old.IsValid() {
			m.value(p.element, element, true, members[name])
		} else {
			m.addAll(p.element, element, false, members[name])
		}
		m.pop()
		v.SetMapIndex(key, element)
	}
}

// lists merges lists whose items are merged one by one.
func (m *merge) lists(p *plan, v reflect.Value, has bool, c any) {
	list, _ := c.([]any)
	n := v.Len()
	switch {
	case len(list) == 0:
		m.emptyList = m.emptyList || c != nil
		m.empty(p, v, has, n > 0, c)
		return
	case n == 0:
		m.addAll(p, v, has, c)
		return
	}
	var left []keyed
	if p.mode == setMode {
		left = valuesOf(v, n)
	} else {
		left = m.keysOf(p, v, n)
	}
	order, sorted, ok := m.arranged(p.shape, left, list)
	if !ok {
		return
	}
	out := v
	if !order.inPlace(n) {
		out = reflect.MakeSlice(v.Type(), len(order), len(order))
		for i, pair := range order {
			if pair.left >= 0 {
				out.Index(i).Set(v.Index(pair.left))
			}
		}
		v.Set(out)
	}
	places := order.places(len(list))
	for _, key := range sorted {
		item, c := out.Index(places[key.at]), list[key.at]
		m.push(step{kind: p.shape.itemStep(), parts: key.parts})
		switch {
		case order[places[key.at]].left < 0:
			m.trees(p.shape.item, tree{}, tree{c, true})
			m.assign(p.typ.element, item, c)
		case p.mode == keyedMode:
			m.value(p.element, item, true, c)
		}
		m.pop()
	}
}

// arranged returns the result of arrange for a list of the object, whose keys it computes, and a list of the
// configuration. It returns false if the merge has failed.
func (m *merge) arranged(s *shape, left []keyed, list []any) (order arrangement, sorted []keyed, ok bool) {
	right := m.treeKeys(s, list)
	if !m.failed && m.namesKeys(s, list) {
		order, sorted, ok = arrange(left, right)
	}
	if !ok {
		m.failed = true
		return nil, nil, false
	}
	m.reordered = m.reordered || !order.inPlace(len(left))
	return order, sorted, true
}

// namesKeys reports whether each item of a list in the configuration has at least one key field. If the key of an item
// consists only of defaults, the general algorithm has to be used.
func (m *merge) namesKeys(s *shape, list []any) bool {
	if len(s.keys) == 0 {
		return true
	}
	for _, item := range list {
		members, _ := item.(map[string]any)
		if !slices.ContainsFunc(s.keys, func(name string) bool { _, has := members[name]; return has }) {
			return false
		}
	}
	return true
}

// An arrangement is the items of two lists in the order in which they are merged.
type arrangement []pairing

// A pairing has the index of an item in the object's list and in the configuration's list; -1 if an item is missing there.
type pairing struct{ left, right int }

// inPlace reports whether the merged list has the n items of the object in their order.
func (a arrangement) inPlace(n int) bool {
	if len(a) != n {
		return false
	}
	for i := range a {
		if a[i].left != i {
			return false
		}
	}
	return true
}

// places returns where each of the n items of the configuration stands in the merged list.
func (a arrangement) places(n int) []int {
	out := make([]int, n)
	for i, pair := range a {
		if pair.right >= 0 {
			out[pair.right] = i
		}
	}
	return out
}

// arrange returns the items of two lists in the order of the merged list. It also returns the items of the
// configuration sorted by key: changes are recorded in this order, because adding to a set in any other order is
// slow. It returns false for a list with two items of one key.
//
// The items of the configuration (right) keep their order. The list of the object (left) is walked beside it. An item
// that only the object has is placed when the walk comes to it. At an item that both have, the walk waits until it is
// that item's turn in the configuration, or goes on if another shared item has to come before.
//
// For example, a, x, b, y of the object and b, a of the configuration become x, b, y, a: the walk leaves a, because b
// has to come before it, places x, places b, places y, and is at its end; then comes a.
func arrange(left, right []keyed) (_ arrangement, sorted []keyed, ok bool) {
	sorted = slices.Clone(right)
	toRight, toLeft, ok := match(left, sorted)
	if !ok {
		return nil, nil, false
	}
	out := make(arrangement, 0, len(left)+len(right))
	i, j := 0, 0
	next := nextShared(toLeft, 0)
	for i < len(left) || j < len(right) {
		switch {
		case i < len(left) && toRight[i] < 0:
			out = append(out, pairing{i, -1})
			i++
			continue
		case i < len(left) && j < len(right) && toRight[i] != j && next >= 0 && toRight[i] != next:
			i++ // the configuration determines its position
			continue
		case j == len(right):
			i++ // it was placed already, as an item of the configuration
			continue
		}
		// The object's list is at its end, or at an item that comes with this one, or later.
		if i < len(left) && toRight[i] <= j {
			i++
		}
		out = append(out, pairing{toLeft[j], j})
		if j == next {
			next = nextShared(toLeft, j+1)
		}
		j++
	}
	return out, sorted, true
}

// nextShared returns the index of the first item from j on that both lists have, -1 if there is none.
func nextShared(toLeft []int, j int) int {
	for ; j < len(toLeft); j++ {
		if toLeft[j] >= 0 {
			return j
		}
	}
	return -1
}

// match finds the items of two lists that have the same key. It sorts r by key.
func match(left, r []keyed) (toRight, toLeft []int, ok bool) {
	places := make([]int, len(left)+len(r))
	for i := range places {
		places[i] = -1
	}
	toRight, toLeft = places[:len(left)], places[len(left):]
	l := slices.Clone(left)
	if !sortKeyed(l) || !sortKeyed(r) {
		return nil, nil, false
	}
	for i, j := 0, 0; i < len(l) && j < len(r); {
		switch c := byKey(l[i], r[j]); {
		case c < 0:
			i++
		case c > 0:
			j++
		default:
			toRight[l[i].at], toLeft[r[j].at] = r[j].at, l[i].at
			i++
			j++
		}
	}
	return toRight, toLeft, true
}
