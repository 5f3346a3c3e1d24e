package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// What a section collects of a server is a tree: map[string]any with names, []any, leaves of JSON, and order.

// An order is a list of names of which only the order is compared, of those that both servers have.
type order []string

// A difference is a place in a tree where the two servers differ.
type difference struct {
	path string // a JSON pointer without the slash in front
	text string
}

func (d difference) String() string { return d.path + ": " + d.text }

// compareTrees returns the differences between two trees. What only one server has is one difference, at its root.
func compareTrees(want, got map[string]any) []difference {
	return compareMaps("", want, got)
}

func compareValues(path string, want, got any) []difference {
	switch w := want.(type) {
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			return compareMaps(path, w, g)
		}
	case []any:
		if g, ok := got.([]any); ok {
			return compareLists(path, w, g)
		}
	case order:
		if g, ok := got.(order); ok {
			return compareOrders(path, w, g)
		}
	}
	if a, b := compact(want), compact(got); a != b {
		a, b = fromDifference(a, b)
		return []difference{{path, fmt.Sprintf("%s %s, %s %s", reference, shorten(a), keelson, shorten(b))}}
	}
	return nil
}

func compareMaps(path string, want, got map[string]any) (out []difference) {
	names := maps.Clone(want)
	maps.Copy(names, got)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		at := join(path, name)
		w, inWant := want[name]
		g, inGot := got[name]
		switch {
		case !inWant:
			out = append(out, only(at, keelson, g))
		case !inGot:
			out = append(out, only(at, reference, w))
		default:
			out = append(out, compareValues(at, w, g)...)
		}
	}
	return out
}

// only is the difference that only one server has a value. A value that is not large is shown.
func only(path, name string, v any) difference {
	const most = 100
	if s := compact(v); len(s) <= most {
		return difference{path, fmt.Sprintf("only %s: %s", name, s)}
	}
	return difference{path, "only " + name}
}

// compareLists compares lists of texts as sets and by their order, lists of objects with names by these, and others by
// position.
func compareLists(path string, want, got []any) []difference {
	if w, ok := byName(want); ok {
		if g, ok := byName(got); ok {
			return compareMaps(path, w, g)
		}
	}
	w, wantTexts := texts(want)
	g, gotTexts := texts(got)
	if wantTexts && gotTexts {
		var out []difference
		for _, s := range w {
			if !slices.Contains(g, s) {
				out = append(out, difference{path, fmt.Sprintf("only %s has %s", reference, shorten(compact(s)))})
			}
		}
		for _, s := range g {
			if !slices.Contains(w, s) {
				out = append(out, difference{path, fmt.Sprintf("only %s has %s", keelson, shorten(compact(s)))})
			}
		}
		if len(out) == 0 && !slices.Equal(w, g) {
			out = append(out, difference{path, fmt.Sprintf("%s %s, %s %s", reference, shorten(compact(w)), keelson, shorten(compact(g)))})
		}
		return out
	}
	return compareElements(path, want, got)
}

// compareElements compares elements that are in one list only: pairs by position if both have equally many.
func compareElements(path string, want, got []any) (out []difference) {
	w, g := without(want, got), without(got, want)
	if len(w) != len(g) {
		for _, i := range w {
			out = append(out, only(join(path, fmt.Sprint(i)), reference, want[i]))
		}
		for _, i := range g {
			out = append(out, only(join(path, fmt.Sprint(i)), keelson, got[i]))
		}
		return out
	}
	for n, i := range w {
		out = append(out, compareValues(join(path, fmt.Sprint(i)), want[i], got[g[n]])...)
	}
	if len(out) == 0 && len(want) != len(got) {
		out = append(out, difference{path, fmt.Sprintf("%s has %d elements, %s %d", reference, len(want), keelson, len(got))})
	}
	return out
}

// without returns the positions of the elements of a that b does not have.
func without(a, b []any) (out []int) {
	in := map[string]bool{}
	for _, e := range b {
		in[compact(e)] = true
	}
	for i, e := range a {
		if !in[compact(e)] {
			out = append(out, i)
		}
	}
	return out
}

func compareOrders(path string, want, got order) []difference {
	w := slices.DeleteFunc(slices.Clone(want), func(s string) bool { return !slices.Contains(got, s) })
	g := slices.DeleteFunc(slices.Clone(got), func(s string) bool { return !slices.Contains(want, s) })
	if slices.Equal(w, g) {
		return nil
	}
	for i := range w {
		if w[i] != g[i] {
			return []difference{{path, fmt.Sprintf("%s has %s here, %s %s", reference, w[i], keelson, g[i])}}
		}
	}
	return nil
}

// byName returns the objects of a list by their names, if all have one of their own. Parameters of a path may have the same
// name in different places.
func byName(list []any) (map[string]any, bool) {
	out := map[string]any{}
	for _, e := range list {
		m, ok := e.(map[string]any)
		name, named := m["name"].(string)
		if version := text(m["version"]); !named && version != "" && text(m["kind"]) != "" { // x-kubernetes-group-version-kind
			name, named = text(m["group"])+" "+version+" "+text(m["kind"]), true
		}
		if !ok || !named {
			return nil, false
		}
		if in := text(m["in"]); in != "" {
			name += " in " + in
		}
		if _, ok := out[name]; ok {
			return nil, false
		}
		out[name] = m
	}
	return out, len(list) > 0
}

func texts(list []any) ([]string, bool) {
	var out []string
	for _, e := range list {
		s, ok := e.(string)
		if !ok {
			return nil, false
		}
		out = append(out, s)
	}
	return out, true
}

var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// join appends a name to a JSON pointer (RFC 6901).
func join(path, name string) string {
	if path == "" {
		return pointer.Replace(name)
	}
	return path + "/" + pointer.Replace(name)
}

// compact returns a value as JSON in one line, with sorted names.
func compact(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(b.String())
}

// fromDifference removes most of the common beginning of two texts.
func fromDifference(a, b string) (string, string) {
	const kept = 40
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	if same <= kept {
		return a, b
	}
	return "..." + a[same-kept:], "..." + b[same-kept:]
}

// shorten shortens a text for a line of output.
func shorten(s string) string {
	const most = 160
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
