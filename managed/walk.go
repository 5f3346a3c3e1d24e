package managed

import (
	"reflect"
	"slices"
	"strings"
)

// A walk compares two values of one type, by its schema, and gathers the paths of
// what changed or was added, and of what was removed.
//
// It follows the general algorithm exactly or gives up: on values that do not fit
// the schema, lists with duplicate keys and the like.
type walk struct {
	// frames are the steps from the root to where the walk is, the root first.
	frames []frame
	// failed says that the general algorithm has to do it.
	failed bool
	// reset are the fields that are not owned here; nil where there are none.
	reset *set
	// unique refuses duplicates in lists that are owned as one too.
	unique bool
	// emptyList says that a list was met that is empty and merged by items. It is no field of its own, which
	// makes the removal of fields around it a matter for the general algorithm.
	emptyList bool
}

type frame struct {
	step step
	// sets are those of changed and of removed paths below the step, nil so far.
	sets [2]*set
}

const (
	changed = iota
	removed
)

// begin makes the walk ready for two values.
func (w *walk) begin(reset *set) {
	clear(w.frames[:cap(w.frames)])
	w.frames = append(w.frames[:0], frame{})
	w.failed, w.unique, w.emptyList = false, false, false
	w.reset = reset
}

func (w *walk) result(which int) *set { return w.frames[0].sets[which] }

func (w *walk) push(s step) { w.frames = append(w.frames, frame{step: s}) }
func (w *walk) pushField(name string) {
	w.frames = append(w.frames, frame{step: step{kind: fieldStep, name: name}})
}
func (w *walk) pop() { w.frames = w.frames[:len(w.frames)-1] }

// add puts the path where the walk is into a set.
func (w *walk) add(which int) {
	last := len(w.frames) - 1
	if last == 0 {
		return
	}
	w.below(which, last-1).at(&w.frames[last].step).member = true
}

// below returns the set of paths below a frame.
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

// presence notes a value that only one side has.
func (w *walk) presence(hasLeft, hasRight bool) {
	switch {
	case !hasLeft:
		w.add(changed)
	case !hasRight:
		w.add(removed)
	}
}

// A plan is how values of a Go type are compared by a shape.
type plan struct {
	mode    planMode
	typ     *goType
	shape   *shape
	fields  []planField
	element *plan
	keys    []planKey
	// odd says that values may hold what check has to look at, lacksKeys that items may have no key.
	odd, lacksKeys bool
}

type planField struct {
	*goField
	// plan is nil where the schema does not know the field.
	plan *plan
	// skip says that the field is never owned here.
	skip bool
	// odd says that check has to look at the field.
	odd bool
}

type planKey struct {
	name     string
	field    *goField
	fallback *shapeField
}

type planMode uint8

const (
	// leafMode compares values as a whole.
	leafMode planMode = iota
	structMode
	mapMode
	keyedMode
	setMode
	// treeMode makes a tree of a value that converts itself.
	treeMode
	// failMode gives up.
	failMode
)

type planner struct {
	made map[planPair]*plan
}

type planPair struct {
	typ   *goType
	shape *shape
}

// planOf compiles how a Go type is compared by a shape.
func (p *planner) planOf(g *goType, s *shape) *plan {
	if known := p.made[planPair{g, s}]; known != nil {
		return known
	}
	out := &plan{typ: g, shape: s, mode: failMode}
	p.made[planPair{g, s}] = out
	inner := g
	if g.form == pointerForm {
		inner = g.element
	}
	switch {
	case inner.form == unknownForm:
	case inner.form == customForm:
		if s.leaf() {
			out.mode = leafMode
		} else {
			out.mode = treeMode
		}
	case isScalar(inner):
		if fitsLeaf(inner, s) {
			out.mode = leafMode
		}
	case s.leaf() && (s.plain() || s.scalar == untyped):
		if fitsLeaf(inner, s) {
			out.mode = leafMode
		}
	case !s.plain():
	case s.isMap && inner.form == structForm:
		out.mode = structMode
		for i := range inner.fields {
			f := planField{goField: &inner.fields[i]}
			if below := s.field(f.name); below != nil {
				f.plan = p.planOf(f.typ, below)
			}
			out.fields = append(out.fields, f)
		}
	case s.isMap && g.form == mapForm && s.element != nil:
		out.mode = mapMode
		out.element = p.planOf(g.element, s.element)
	case s.isList && g.form == sliceForm && len(s.keys) == 0:
		if isPart(g.element) {
			out.mode = setMode
			out.element = p.planOf(g.element, s.item)
		}
	case s.isList && g.form == sliceForm:
		p.keyed(out)
	}
	return out
}

// isScalar says that values of the type are never maps or lists.
func isScalar(g *goType) bool {
	switch g.form {
	case boolForm, intForm, uintForm, floatForm, stringForm, bytesForm, timeForm, microTimeForm, quantityForm, intOrStringForm:
		return true
	}
	return false
}

// fitsLeaf says whether values of the type are of the kind that the shape wants.
func fitsLeaf(g *goType, s *shape) bool {
	switch g.form {
	case structForm, mapForm:
		return s.isMap
	case sliceForm:
		return s.isList
	case boolForm:
		return s.scalar == boolean || s.scalar == untyped
	case intForm, uintForm, floatForm:
		return s.scalar == numeric || s.scalar == untyped
	case stringForm, bytesForm, timeForm, microTimeForm, quantityForm:
		return s.scalar == text || s.scalar == untyped
	case intOrStringForm:
		return s.scalar == untyped
	}
	return false
}

func isPart(g *goType) bool {
	return g.form == stringForm || g.form == intForm || g.form == boolForm
}

func (p *planner) keyed(out *plan) {
	inner := out.typ.element
	if inner.form != structForm || !out.shape.item.isMap {
		return
	}
	for _, name := range out.shape.keys {
		k := planKey{name: name, fallback: out.shape.item.fields[name]}
		for i := range inner.fields {
			if f := &inner.fields[i]; f.name == name {
				k.field = f
				g := f.typ
				if g.form == pointerForm {
					g = g.element
				}
				if !isPart(g) {
					return
				}
			}
		}
		out.keys = append(out.keys, k)
	}
	out.mode = keyedMode
	out.element = p.planOf(inner, out.shape.item)
}

// values compares two values by a plan; one that is not valid is absent.
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

// isNil says that a value is a nil pointer, map or slice.
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
	for i := range p.fields {
		f := &p.fields[i]
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

// container notes the presence of a map or list whose items were visited; one that
// had none on either side is a leaf, to tell null and empty apart.
func (w *walk) container(l, r reflect.Value, visited bool) {
	if !visited && l.IsValid() && r.IsValid() {
		if isNil(l) != isNil(r) {
			w.add(changed)
		}
		return
	}
	w.presence(l.IsValid(), r.IsValid())
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
	keys := make([]string, 0, n+m)
	if n > 0 {
		for entries := l.MapRange(); entries.Next(); {
			keys = append(keys, entries.Key().String())
		}
	}
	if m > 0 {
		for entries := r.MapRange(); entries.Next(); {
			if key := entries.Key(); n == 0 || !l.MapIndex(key).IsValid() {
				keys = append(keys, key.String())
			}
		}
	}
	slices.Sort(keys)
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
	w.container(l, r, len(keys) > 0)
}

// sameStrings says of two maps of strings that they are equal.
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

// keyed is a list's item with its key.
type keyed struct {
	parts []part
	at    int
}

func byKey(a, b keyed) int { return compareParts(a.parts, b.parts) }

// sortKeyed orders items by key; false if two have the same.
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

// pairs calls visit for the items of two lists that have the same key, -1 for the
// side that has none.
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
	left, right := w.keysOf(p, l, n), w.keysOf(p, r, m)
	w.pairs(keyStep, left, right, func(i, j int) { w.values(p.element, indexed(l, i), indexed(r, j)) })
	w.container(l, r, n+m > 0)
}

func indexed(list reflect.Value, i int) reflect.Value {
	if i < 0 {
		return reflect.Value{}
	}
	return list.Index(i)
}

func (w *walk) keysOf(p *plan, list reflect.Value, n int) []keyed {
	out := make([]keyed, 0, n)
	parts := make([]part, 0, n*len(p.keys))
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

// A tree is decoded JSON, or absent.
type tree struct {
	value any
	here  bool
}

// convert makes a tree of a value that converts itself.
func (w *walk) convert(g *goType, v reflect.Value) tree {
	if !v.IsValid() {
		return tree{}
	}
	if g.form == pointerForm {
		if v.IsNil() {
			return tree{here: true}
		}
		g, v = g.element, v.Elem()
	}
	out, err := g.entry.ToUnstructured(addressable(v))
	if err != nil {
		w.failed = true
	}
	return tree{value: out, here: true}
}

// trees compares two trees by a shape.
func (w *walk) trees(s *shape, l, r tree) {
	if w.failed {
		return
	}
	kindL, kindR := w.kindOf(s, l), w.kindOf(s, r)
	if w.failed {
		return
	}
	if s.leaf() {
		w.whole(s, l.value)
		w.whole(s, r.value)
		if !l.here || !r.here {
			w.presence(l.here, r.here)
		} else if !equalTrees(l.value, r.value) {
			w.add(changed)
		}
		return
	}
	kind := kindL
	if kind == noTree {
		kind = kindR
	}
	if !s.plain() {
		// Values of different kinds, and null beside a value, take turns in the general
		// algorithm.
		if l.here && r.here && kindL != kindR {
			w.failed = true
			return
		}
	}
	switch {
	case kind == mapTree, kind == noTree && s.isMap:
		if s.mapAtomic {
			w.atomic(s, l, r)
		} else {
			w.treeMaps(s, l, r)
		}
	case kind == scalarTree, kind == noTree && s.scalar != noScalar:
		w.atomic(s, l, r)
	default:
		if s.listAtomic {
			w.atomic(s, l, r)
		} else {
			w.treeLists(s, l, r)
		}
	}
}

func (w *walk) atomic(s *shape, l, r tree) {
	w.whole(s, l.value)
	w.whole(s, r.value)
	if !l.here || !r.here {
		w.presence(l.here, r.here)
	} else if !equalTrees(l.value, r.value) {
		w.add(changed)
	}
}

type treeKind uint8

const (
	noTree treeKind = iota
	scalarTree
	listTree
	mapTree
)

// kindOf returns the kind of a value; noTree if it is absent or null. It gives up on
// a value that the shape does not allow.
func (w *walk) kindOf(s *shape, t tree) treeKind {
	ok := true
	kind := noTree
	switch v := t.value.(type) {
	case nil:
	case map[string]any:
		kind, ok = mapTree, s.isMap
		if v == nil {
			ok = false
		}
	case []any:
		kind, ok = listTree, s.isList
		if v == nil {
			ok = false
		}
	case string:
		kind, ok = scalarTree, s.scalar == text || s.scalar == untyped
	case bool:
		kind, ok = scalarTree, s.scalar == boolean || s.scalar == untyped
	case int64, float64:
		kind, ok = scalarTree, s.scalar == numeric || s.scalar == untyped
	default:
		ok = false
	}
	if !ok {
		w.failed = true
	}
	return kind
}

// whole checks that a value that is owned as one fits its shape.
func (w *walk) whole(s *shape, v any) {
	if w.failed {
		return
	}
	w.kindOf(s, tree{value: v})
	switch v := v.(type) {
	case map[string]any:
		for name, below := range v {
			inner := s.field(name)
			if inner == nil {
				w.failed = true
				return
			}
			w.whole(inner, below)
		}
	case []any:
		if w.failed {
			return
		}
		if s.associative {
			w.emptyList = w.emptyList || len(v) == 0
			items := w.treeKeys(s, v)
			w.failed = w.failed || w.unique && !sortKeyed(items)
		}
		for _, below := range v {
			w.whole(s.item, below)
		}
	}
}

func (w *walk) treeMaps(s *shape, l, r tree) {
	left, _ := l.value.(map[string]any)
	right, _ := r.value.(map[string]any)
	keys := make([]string, 0, max(len(left), len(right)))
	for name := range left {
		keys = append(keys, name)
	}
	for name := range right {
		if _, both := left[name]; !both {
			keys = append(keys, name)
		}
	}
	slices.Sort(keys)
	for _, name := range keys {
		below := s.field(name)
		if below == nil {
			w.failed = true
			return
		}
		a, hasA := left[name]
		b, hasB := right[name]
		if len(w.frames) == 1 && w.reset.has(name) {
			w.whole(below, a)
			w.whole(below, b)
			continue
		}
		w.pushField(name)
		w.trees(below, tree{a, hasA}, tree{b, hasB})
		w.pop()
	}
	w.treeContainer(l, r, len(keys) > 0)
}

func (w *walk) treeContainer(l, r tree, visited bool) {
	if !visited && l.here && r.here {
		if (l.value == nil) != (r.value == nil) {
			w.add(changed)
		}
		return
	}
	w.presence(l.here, r.here)
}

func (w *walk) treeLists(s *shape, l, r tree) {
	left, _ := l.value.([]any)
	right, _ := r.value.([]any)
	w.emptyList = w.emptyList || left != nil && len(left) == 0 || right != nil && len(right) == 0
	kind := keyStep
	if len(s.keys) == 0 {
		kind = valueStep
	}
	a, b := w.treeKeys(s, left), w.treeKeys(s, right)
	w.pairs(kind, a, b, func(i, j int) { w.trees(s.item, treeAt(left, i), treeAt(right, j)) })
	w.treeContainer(l, r, len(left)+len(right) > 0)
}

func treeAt(list []any, i int) tree {
	if i < 0 {
		return tree{}
	}
	return tree{value: list[i], here: true}
}

// treeKeys returns the keys of a list's items.
func (w *walk) treeKeys(s *shape, list []any) []keyed {
	out := make([]keyed, 0, len(list))
	parts := make([]part, 0, len(list)*max(1, len(s.keys)))
	for i := range list {
		start := len(parts)
		if len(s.keys) == 0 {
			p, ok := partOf(list[i])
			if !ok {
				w.failed = true
				return nil
			}
			parts = append(parts, p)
		} else if m, ok := list[i].(map[string]any); ok {
			parts = w.treeParts(s, m, parts)
		}
		if len(parts) == start {
			w.failed = true
			return nil
		}
		out = append(out, keyed{parts: parts[start:len(parts):len(parts)], at: i})
	}
	return out
}

func (w *walk) treeParts(s *shape, m map[string]any, parts []part) []part {
	for _, name := range s.keys {
		field := s.item.fields[name]
		if v, has := m[name]; has {
			p, ok := partOf(v)
			if !ok {
				w.failed = true
			}
			p.name = name
			parts = append(parts, p)
		} else if field != nil && field.hasFallback {
			parts = append(parts, field.fallback)
		}
	}
	return parts
}

// applied gathers the paths that an applied configuration mentions. It gives up on
// what the general algorithm refuses.
func (w *walk) applied(s *shape, v any) {
	kind := w.kindOf(s, tree{value: v})
	switch {
	case w.failed:
	case kind == mapTree, kind == noTree && s.isMap:
		if s.mapAtomic {
			w.add(changed)
			w.whole(s, v)
		} else {
			w.appliedMap(s, v)
		}
	case kind == scalarTree, kind == noTree && s.scalar != noScalar:
		w.add(changed)
	case s.listAtomic:
		w.add(changed)
		w.whole(s, v)
	default:
		w.appliedList(s, v)
	}
}

func (w *walk) appliedMap(s *shape, v any) {
	m, _ := v.(map[string]any)
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		below := s.field(name)
		if below == nil {
			w.failed = true
			return
		}
		w.pushField(name)
		w.applied(below, m[name])
		inner, isMap := m[name].(map[string]any)
		if m[name] == nil || isMap && len(inner) == 0 || s.fields[name] == nil {
			w.add(changed)
		}
		w.pop()
	}
}

func (w *walk) appliedList(s *shape, v any) {
	list, _ := v.([]any)
	kind := keyStep
	if len(s.keys) == 0 {
		kind = valueStep
	}
	items := w.treeKeys(s, list)
	if w.failed || !sortKeyed(items) {
		w.failed = true
		return
	}
	for _, it := range items {
		w.push(step{kind: kind, parts: it.parts})
		w.applied(s.item, list[it.at])
		w.add(changed)
		w.pop()
	}
}

// within drops from a set what is not owned here: the reset fields with all below
// them. It is the general algorithm's filter.
func (s *set) within(reset *set) *set {
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
			kept.sub = kept.sub.within(reset.items[j].sub)
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

// has says whether a field of the root is in the set.
func (s *set) has(name string) bool {
	if s == nil {
		return false
	}
	i, found := s.find(&step{kind: fieldStep, name: name})
	return found && s.items[i].member
}

// pathSet makes a set of dotted field names.
func pathSet(paths ...string) *set {
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
