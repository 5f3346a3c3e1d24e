package managedfields

import (
	"reflect"
	"slices"
	"unsafe"
)

// A walk compares two values by their schema. It records the paths of modified and added fields in one set, and those
// of removed fields in another.
//
// The walk has the same result as the general algorithm. It fails on values that do not fit the schema, on lists with two
// items of the same key, and in similar cases.
type walk struct {
	// frames are the path to where the walk is, the root first.
	frames []frame
	// failed means that the general algorithm has to compare the values.
	failed bool
	// reset are the fields of the root that are skipped; nil if there are none.
	reset *set
	// unique makes the walk fail on two items with the same key in any list, also in one that is owned as a whole.
	unique bool
	// emptyList means that the walk has found an empty list that is merged by items. It is not a field by itself, so
	// the general algorithm has to remove fields around it.
	emptyList bool
	// tape has what the walk did, if taping is true: instead of building sets, the walk writes each step and each
	// recorded path to it. Walks with the same tape build the same sets. See tape.go.
	tape   []byte
	taping bool
	// depth is the number of steps from the root to where the walk is.
	depth int
	// names, items and parts are buffers for the lists and maps that the walk is in.
	names []string
	items []keyed
	parts []part
}

type frame struct {
	step step
	// sets are the changed and the removed fields below the step; nil while there are none.
	sets [2]*set
}

const (
	changed = iota
	removed
)

// begin makes the walk ready for another two values.
func (w *walk) begin(reset *set) {
	clear(w.frames[:cap(w.frames)])
	w.frames = append(w.frames[:0], frame{})
	w.names, w.items, w.parts = reuse(w.names), reuse(w.items), reuse(w.parts)
	w.failed, w.unique, w.emptyList, w.taping, w.depth = false, false, false, false, 0
	w.reset = reset
}

// maxReused limits the names, items or parts that are kept for the next walk.
const maxReused = 512

// reuse returns s without elements, and without its memory if that is large.
func reuse[T any](s []T) []T {
	if cap(s) > maxReused {
		return nil
	}
	clear(s[:cap(s)])
	return s[:0]
}

// result returns one of the two recorded sets; which is the constant changed or removed.
func (w *walk) result(which int) *set { return w.frames[0].sets[which] }

func (w *walk) push(s step) {
	w.depth++
	if w.taping {
		w.tapeStep(&s)
		return
	}
	w.frames = append(w.frames, frame{step: s})
}

func (w *walk) pushField(name string) {
	w.depth++
	if w.taping {
		w.tapeField(name)
		return
	}
	w.frames = append(w.frames, frame{step: step{kind: fieldStep, name: name}})
}

func (w *walk) pop() {
	w.depth--
	if w.taping {
		w.tape = append(w.tape, tapePop)
		return
	}
	w.frames = w.frames[:len(w.frames)-1]
}

// add adds the current path of the walk to one of the two sets.
func (w *walk) add(which int) {
	if w.taping {
		w.tape = append(w.tape, tapeAdd+byte(which))
		return
	}
	last := len(w.frames) - 1
	if last == 0 {
		return
	}
	w.below(which, last-1).at(&w.frames[last].step).member = true
}

// below returns the set of the fields below a frame.
func (w *walk) below(which, i int) *set {
	f := &w.frames[i]
	if f.sets[which] == nil {
		if i == 0 {
			f.sets[which] = &set{}
		} else {
			it := w.below(which, i-1).at(&f.step)
			if it.sub == nil {
				it.sub = &set{}
			}
			f.sets[which] = it.sub
		}
	}
	return f.sets[which]
}

// presence records a value that only one side has.
func (w *walk) presence(hasLeft, hasRight bool) {
	switch {
	case !hasLeft:
		w.add(changed)
	case !hasRight:
		w.add(removed)
	}
}

// values compares two values by a plan. An invalid reflect.Value stands for an absent value.
func (w *walk) values(p *plan, l, r reflect.Value) {
	if w.failed {
		return
	}
	switch p.mode {
	case leafMode:
		w.leaf(p, l, r)
	case structMode:
		w.structs(p, deref(l), deref(r))
	case mapMode:
		w.maps(p, l, r)
	case keyedMode:
		w.keyedLists(p, l, r)
	case setMode:
		w.setLists(p, l, r)
	case treeMode:
		w.trees(p.shape, w.convert(p.typ, l), w.convert(p.typ, r))
	default:
		w.failed = true
	}
}

func deref(v reflect.Value) reflect.Value {
	if v.IsValid() && v.Kind() == reflect.Pointer && !v.IsNil() {
		return v.Elem()
	}
	return v
}

// isNil reports whether a value is a nil pointer, map or slice.
func isNil(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice:
		return v.IsNil()
	}
	return false
}

func (w *walk) leaf(p *plan, l, r reflect.Value) {
	if !l.IsValid() || !r.IsValid() {
		w.presence(l.IsValid(), r.IsValid())
	} else if !p.typ.equal(l, r) {
		w.add(changed)
	}
}

func (w *walk) structs(p *plan, l, r reflect.Value) {
	hasL, hasR := l.IsValid() && !isNil(l), r.IsValid() && !isNil(r)
	visited := false
	// Most fields are omitted on both sides. Then their memory in both structs is zero, which is checked first.
	var atL, atR unsafe.Pointer
	known := true
	if hasL {
		atL, known = addressOf(l)
	}
	if hasR && known {
		atR, known = addressOf(r)
	}
	for i := range p.fields {
		f := &p.fields[i]
		if known && f.isZero(atL) && f.isZero(atR) {
			continue
		}
		var a, b reflect.Value
		var hasA, hasB bool
		if hasL {
			if a, hasA = f.of(l); !hasA {
				a = reflect.Value{}
			}
		}
		if hasR {
			if b, hasB = f.of(r); !hasB {
				b = reflect.Value{}
			}
		}
		if !hasA && !hasB {
			continue
		}
		visited = true
		if f.skip {
			continue
		}
		if f.plan == nil {
			w.failed = true
			return
		}
		w.pushField(f.name)
		w.values(f.plan, a, b)
		w.pop()
	}
	w.container(l, r, visited)
}

// addressOf returns the address of a value, and false if it has none.
func addressOf(v reflect.Value) (unsafe.Pointer, bool) {
	if !v.CanAddr() {
		return nil, false
	}
	return unsafe.Pointer(v.UnsafeAddr()), true
}

// container is around for Go values.
func (w *walk) container(l, r reflect.Value, visited bool) {
	w.around(l.IsValid(), r.IsValid(), isNil(l) == isNil(r), visited)
}

// around records a map or list that only one side has. visited means that the items have been compared. Otherwise
// the map or list is empty on both sides, and null differs from empty. sameNull means that both or none of them
// are null.
func (w *walk) around(hasLeft, hasRight, sameNull, visited bool) {
	switch {
	case visited || !hasLeft || !hasRight:
		w.presence(hasLeft, hasRight)
	case !sameNull:
		w.add(changed)
	}
}

func length(v reflect.Value) int {
	if !v.IsValid() {
		return 0
	}
	return v.Len()
}

func (w *walk) maps(p *plan, l, r reflect.Value) {
	n, m := length(l), length(r)
	if n > 0 && n == m && sameStrings(l, r) {
		return
	}
	start := len(w.names)
	keys := w.names
	if n > 0 {
		keys = appendKeys(keys, l, reflect.Value{})
	}
	if m > 0 {
		keys = appendKeys(keys, r, l)
	}
	w.names = keys // nested maps use the rest of the slice
	keys = keys[start:]
	slices.Sort(keys)
	w.mapValues(p, keys, l, r)
	w.names = w.names[:start]
	w.container(l, r, len(keys) > 0)
}

// mapValues compares the values that two maps have for the given keys.
func (w *walk) mapValues(p *plan, keys []string, l, r reflect.Value) {
	n, m := length(l), length(r)
	if p.element.mode == leafMode && (n == 0 || m == 0) { // the values do not matter
		for _, name := range keys {
			w.pushField(name)
			w.presence(n > 0, m > 0)
			w.pop()
		}
		return
	}
	var a, b reflect.Value
	for _, name := range keys {
		key := reflect.ValueOf(name)
		if p.typ.typ.Key() != key.Type() {
			key = key.Convert(p.typ.typ.Key())
		}
		if n > 0 {
			a = l.MapIndex(key)
		}
		if m > 0 {
			b = r.MapIndex(key)
		}
		w.pushField(name)
		w.values(p.element, a, b)
		w.pop()
	}
}

// appendKeys appends the keys of a map that are not in another one. An invalid value is a map without keys.
func appendKeys(keys []string, of, not reflect.Value) []string {
	if length(not) == 0 {
		if m, ok := of.Interface().(map[string]string); ok {
			for key := range m {
				keys = append(keys, key)
			}
			return keys
		}
	}
	for entries := of.MapRange(); entries.Next(); {
		if key := entries.Key(); length(not) == 0 || !not.MapIndex(key).IsValid() {
			keys = append(keys, key.String())
		}
	}
	return keys
}

// sameStrings reports whether two values are equal maps of strings.
func sameStrings(l, r reflect.Value) bool {
	if l.Pointer() == r.Pointer() {
		return true
	}
	a, ok := l.Interface().(map[string]string)
	if !ok {
		return false
	}
	b := r.Interface().(map[string]string)
	for k, v := range a {
		if other, has := b[k]; !has || other != v {
			return false
		}
	}
	return true
}

// keyed is the key and the index of a list item.
type keyed struct {
	parts []part
	at    int
}

func byKey(a, b keyed) int { return compareParts(a.parts, b.parts) }

// sortKeyed sorts items by key. It returns false if two have the same key.
func sortKeyed(items []keyed) bool {
	if !slices.IsSortedFunc(items, byKey) {
		slices.SortFunc(items, byKey)
	}
	for i := 1; i < len(items); i++ {
		if byKey(items[i-1], items[i]) == 0 {
			return false
		}
	}
	return true
}

// pairs visits the items of two lists by key. visit gets the index of the item in each list; -1 if it is not
// there.
func (w *walk) pairs(kind stepKind, l, r []keyed, visit func(l, r int)) {
	if w.failed || !sortKeyed(l) || !sortKeyed(r) {
		w.failed = true
		return
	}
	i, j := 0, 0
	for i < len(l) || j < len(r) {
		c := -1
		switch {
		case i == len(l):
			c = 1
		case j < len(r):
			c = byKey(l[i], r[j])
		}
		a, b, parts := -1, -1, []part(nil)
		if c <= 0 {
			a, parts = l[i].at, l[i].parts
			i++
		}
		if c >= 0 {
			b, parts = r[j].at, r[j].parts
			j++
		}
		w.push(step{kind: kind, parts: parts})
		visit(a, b)
		w.pop()
	}
}

func (w *walk) keyedLists(p *plan, l, r reflect.Value) {
	n, m := length(l), length(r)
	if n > 0 && n == m && l.Pointer() == r.Pointer() {
		return
	}
	items, parts := len(w.items), len(w.parts)
	left, right := w.keysOf(p, l, n), w.keysOf(p, r, m)
	w.pairs(keyStep, left, right, func(i, j int) { w.values(p.element, indexed(l, i), indexed(r, j)) })
	w.container(l, r, n+m > 0)
	w.items, w.parts = w.items[:items], w.parts[:parts]
}

func indexed(list reflect.Value, i int) reflect.Value {
	if i < 0 {
		return reflect.Value{}
	}
	return list.Index(i)
}

// keysOf returns the keys of the n items of a list. They are a part of w.items, which the caller shortens
// afterwards. The parts of the keys are in w.parts only if the walk writes a tape; otherwise the sets of the walk
// keep them.
func (w *walk) keysOf(p *plan, list reflect.Value, n int) []keyed {
	w.items = slices.Grow(w.items, n)
	out := w.items[len(w.items) : len(w.items) : len(w.items)+n]
	w.items = w.items[:len(w.items)+n]
	var parts []part
	if size := n * len(p.keys); w.taping {
		w.parts = slices.Grow(w.parts, size)
		parts = w.parts[len(w.parts) : len(w.parts) : len(w.parts)+size]
		w.parts = w.parts[:len(w.parts)+size]
	} else {
		parts = make([]part, 0, size)
	}
	for i := range n {
		start := len(parts)
		v := list.Index(i)
		for k := range p.keys {
			key := &p.keys[k]
			var set bool
			if key.field != nil {
				var f reflect.Value
				if f, set = key.field.of(v); set {
					if f = deref(f); isNil(f) {
						w.failed = true
						return nil
					}
					parts = append(parts, valuePart(key.name, f))
				}
			}
			if !set && key.fallback != nil && key.fallback.hasFallback {
				parts = append(parts, key.fallback.fallback)
			}
		}
		if len(parts) == start {
			w.failed = true
			return nil
		}
		out = append(out, keyed{parts: parts[start:len(parts):len(parts)], at: i})
	}
	return out
}

func valuePart(name string, v reflect.Value) part {
	switch v.Kind() {
	case reflect.String:
		return part{name: name, kind: textPart, text: v.String()}
	case reflect.Bool:
		p := part{name: name, kind: boolPart}
		if v.Bool() {
			p.num = 1
		}
		return p
	}
	return part{name: name, kind: numPart, num: v.Int()}
}

func (w *walk) setLists(p *plan, l, r reflect.Value) {
	n, m := length(l), length(r)
	w.pairs(valueStep, valuesOf(l, n), valuesOf(r, m), func(i, j int) { w.presence(i >= 0, j >= 0) })
	w.container(l, r, n+m > 0)
}

// valuesOf returns the items of a list without key fields.
func valuesOf(list reflect.Value, n int) []keyed {
	out, parts := make([]keyed, n), make([]part, n)
	for i := range n {
		parts[i] = valuePart("", list.Index(i))
		out[i] = keyed{parts: parts[i : i+1 : i+1], at: i}
	}
	return out
}
