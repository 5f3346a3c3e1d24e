package history

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// ignored are the fields that every change changes.
var ignored = []string{".metadata.resourceVersion", ".metadata.generation", ".metadata.managedFields"}

const (
	// maxName is the longest name of a field in a path, in bytes; of longer ones a path has the beginning. Objects without a schema may
	// have any names.
	maxName = 253
	// maxPath is the length of a path below which fields are not told apart.
	maxPath = 1 << 10
	// maxBytes is the most bytes of paths in a Change: below a long path they may be much longer than the object.
	maxBytes = 16 << 10
)

// Paths returns the paths of the fields that differ between two objects, decoded from JSON, in the order of their names. A field
// that is only in one of them is one path, without those below it. An item of a list is named by its field name, or by its index.
//
// Example: .spec.template.spec.containers[name=web].image, .metadata.labels[app.kubernetes.io/name], .spec.args[0].
func Paths(before, after map[string]any) (paths []string, more int) {
	d := difference{}
	d.maps("", before, after)
	return d.paths, d.more
}

// difference collects paths, at most MaxChanged of at most maxBytes, and counts the others.
type difference struct {
	paths []string
	bytes int
	more  int
}

func (d *difference) add(path string) {
	if len(d.paths) == MaxChanged || d.bytes+len(path) > maxBytes {
		d.more++
		return
	}
	d.paths, d.bytes = append(d.paths, path), d.bytes+len(path)
}

func (d *difference) values(path string, before, after any) {
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

func (d *difference) maps(path string, before, after map[string]any) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(after))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		below := path + field(name)
		if slices.Contains(ignored, below) {
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

func (d *difference) lists(path string, before, after []any) {
	b, named := byName(before)
	a, alsoNamed := byName(after)
	if named && alsoNamed {
		names := slices.AppendSeq(slices.Collect(maps.Keys(b)), maps.Keys(a))
		slices.Sort(names)
		found := len(d.paths) + d.more
		for _, name := range slices.Compact(names) {
			d.items(path+itemNamed(name), b[name], a[name])
		}
		if len(d.paths)+d.more == found && !reflect.DeepEqual(before, after) {
			d.add(path) // only the order is another
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
		d.items(path+"["+strconv.Itoa(i)+"]", was, is)
	}
}

// items compares items, nil if there is none.
func (d *difference) items(path string, before, after any) {
	if before == nil || after == nil {
		if before != after {
			d.add(path)
		}
		return
	}
	d.values(path, before, after)
}

// byName returns the items of a list by their field name. ok is false if they have none, or the same ones.
func byName(list []any) (items map[string]any, ok bool) {
	items = make(map[string]any, len(list))
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

// Leaf is a field of an object that has no fields below it, or an empty map or list.
type Leaf struct {
	Path  string
	Value any
}

// Leaves returns the leaves of an object, decoded from JSON, with the paths of Paths and in the order of their names. The fields
// that every change changes are left out.
func Leaves(object map[string]any) (out []Leaf) {
	var value func(path string, v any)
	value = func(path string, v any) {
		if len(path) >= maxPath {
			out = append(out, Leaf{path, v})
			return
		}
		switch v := v.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				if below := path + field(name); !slices.Contains(ignored, below) {
					value(below, v[name])
				}
			}
			if len(v) > 0 {
				return
			}
		case []any:
			items, named := byName(v)
			for i, item := range v {
				if !named {
					value(path+"["+strconv.Itoa(i)+"]", item)
				}
			}
			if named {
				for _, name := range slices.Sorted(maps.Keys(items)) {
					value(path+itemNamed(name), items[name])
				}
			}
			if len(v) > 0 {
				return
			}
		}
		if path != "" {
			out = append(out, Leaf{path, v})
		}
	}
	value("", object)
	return out
}
