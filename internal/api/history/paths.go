package history

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// ignored are the fields that Paths leaves out. The server sets them, and nearly every change changes one of them.
var ignored = []string{".metadata.resourceVersion", ".metadata.generation", ".metadata.managedFields"}

const (
	// maxName is the largest length of a field name in a path, in bytes; a longer name is cut. Objects without a
	// schema may have any names.
	maxName = 253
	// maxPath is a length in bytes. Paths does not look below a field whose path is this long or longer: all differences
	// below it are one path.
	maxPath = 1 << 10
	// maxBytes limits the bytes of all paths in a Change. Below a long path, the paths may be much longer than the
	// object.
	maxBytes = 16 << 10
)

// Paths returns the paths of the fields that differ between two objects, decoded from JSON, in the order of their names. A field
// that is only in one of them is one path, without those below it. An item of a list is named by its field name, or by its index.
//
// Example: .spec.template.spec.containers[name=web].image, .metadata.labels[app.kubernetes.io/name], .spec.args[0].
func Paths(before, after map[string]any) (paths []string, more int) {
	d := difference{}
	d.maps(make([]byte, 0, 2*maxPath), before, after)
	return d.paths, d.more
}

// difference collects at most MaxChanged paths, of together at most maxBytes, and counts the others. Its functions
// share one buffer, in which each writes its part after the path above it. So a path that is not collected takes no
// memory of its own.
type difference struct {
	paths []string
	bytes int
	more  int
}

func (d *difference) add(path []byte) {
	if len(d.paths) == MaxChanged || d.bytes+len(path) > maxBytes {
		d.more++
		return
	}
	d.paths, d.bytes = append(d.paths, string(path)), d.bytes+len(path)
}

func (d *difference) values(path []byte, before, after any) {
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok && len(path) < maxPath {
			d.maps(path, b, a)
			return
		}
	case []any:
		if a, ok := after.([]any); ok && len(path) < maxPath {
			d.lists(path, b, a)
			return
		}
	}
	if !reflect.DeepEqual(before, after) {
		d.add(path)
	}
}

func (d *difference) maps(path []byte, before, after map[string]any) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(after))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		below := append(path, field(name)...)
		if isIgnored(below) {
			continue
		}
		b, was := before[name]
		a, is := after[name]
		if was && is {
			d.values(below, b, a)
			continue
		}
		d.add(below)
	}
}

// field returns the part of a path for a field.
func field(name string) string {
	name = shorten(name)
	if name == "" || strings.ContainsAny(name, "./[] ") {
		return "[" + name + "]"
	}
	return "." + name
}

// shorten returns a name of at most maxName bytes.
func shorten(name string) string {
	if len(name) <= maxName {
		return name
	}
	return strings.ToValidUTF8(name[:maxName], "") + "..."
}

// itemNamed returns the part of a path for an item of a list.
func itemNamed(name string) string { return "[name=" + shorten(name) + "]" }

// indexed returns the part of a path for an item of a list whose items are named by their index.
func indexed(i int) string { return "[" + strconv.Itoa(i) + "]" }

func (d *difference) lists(path []byte, before, after []any) {
	b, named := byName(before)
	a, alsoNamed := byName(after)
	if named && alsoNamed {
		names := slices.AppendSeq(slices.Collect(maps.Keys(b)), maps.Keys(a))
		slices.Sort(names)
		found := len(d.paths) + d.more
		for _, name := range slices.Compact(names) {
			d.items(append(path, itemNamed(name)...), b[name], a[name])
		}
		if len(d.paths)+d.more == found && !reflect.DeepEqual(before, after) {
			d.add(path) // only the order differs
		}
		return
	}
	for i := range max(len(before), len(after)) {
		var was, is any
		if i < len(before) {
			was = before[i]
		}
		if i < len(after) {
			is = after[i]
		}
		d.items(append(path, indexed(i)...), was, is)
	}
}

// items compares two items of lists. An item is nil if its list does not have it.
func (d *difference) items(path []byte, before, after any) {
	if before == nil || after == nil {
		if before != after {
			d.add(path)
		}
		return
	}
	d.values(path, before, after)
}

// byName returns the items of a list by the value of their field name. ok is false if an item has no name, or if two
// items have the same name.
func byName(list []any) (items map[string]any, ok bool) {
	items = map[string]any{}
	for _, item := range list {
		object, _ := item.(map[string]any)
		name, _ := object["name"].(string)
		if _, double := items[name]; name == "" || double {
			return nil, false
		}
		items[name] = item
	}
	return items, true
}

// eachLeaf calls leaf for each leaf of an object, in the order of names, until leaf returns false. A leaf is a field
// without fields below it, or an empty map or list. path is as in Paths. It is valid only during the call, because
// all paths of a small object together may take hundreds of times its size. was is the value at the same place in
// other; there is false if other does not have that place. The ignored fields are left out.
func eachLeaf(object, other map[string]any, leaf func(path []byte, v, was any, there bool) bool) {
	w := walk{path: make([]byte, 0, 2*maxPath), leaf: leaf}
	w.value(object, other, true)
}

// walk goes through the leaves. Its functions report whether it goes on.
type walk struct {
	path []byte
	leaf func(path []byte, v, was any, there bool) bool
}

func (w *walk) value(v, was any, there bool) bool {
	if len(w.path) < maxPath {
		switch v := v.(type) {
		case map[string]any:
			if len(v) > 0 {
				was, _ := was.(map[string]any)
				return w.fields(v, was, field)
			}
		case []any:
			if len(v) > 0 {
				was, _ := was.([]any)
				return w.list(v, was)
			}
		}
	}
	return len(w.path) == 0 || w.leaf(w.path, v, was, there)
}

// below goes through what is in a value. segment is its part of the path.
func (w *walk) below(segment string, v, was any, there bool) bool {
	above := len(w.path)
	w.path = append(w.path, segment...)
	goesOn := isIgnored(w.path) || w.value(v, was, there)
	w.path = w.path[:above]
	return goesOn
}

func isIgnored(path []byte) bool {
	return slices.ContainsFunc(ignored, func(p string) bool { return p == string(path) })
}

// fields goes through a map. segment returns the part of the path for a name.
func (w *walk) fields(v, was map[string]any, segment func(name string) string) bool {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		before, there := was[name]
		if !w.below(segment(name), v[name], before, there) {
			return false
		}
	}
	return true
}

// list goes through a list. If all items have different names, it finds the old item by its name, otherwise by its
// index. If only one of the two lists has such names, no old item is found.
func (w *walk) list(v, was []any) bool {
	items, named := byName(v)
	before, alsoNamed := byName(was)
	if named {
		return w.fields(items, before, itemNamed)
	}
	for i, item := range v {
		var before any
		there := i < len(was) && !alsoNamed
		if there {
			before = was[i]
		}
		if !w.below(indexed(i), item, before, there) {
			return false
		}
	}
	return true
}
