package kubectlhistory

import (
	"encoding/json"
	"reflect"

	"github.com/keelson-dev/keelson/internal/api/history"
)

// ownedField is a field of an object with the change that gave it its value. change is nil if that is older than the history.
type ownedField struct {
	history.Leaf
	change *history.Change
}

// blame finds which change gave each field of an object its value. It gets the versions of the object from the newest to the
// oldest: a field belongs to the oldest change since which all versions have the value of now.
//
// Example: versions {a:1 b:2}, {a:1 b:1}, {a:0 b:1} (created): b belongs to the newest change, a to the second one.
type blame struct {
	fields []ownedField
	open   int             // how many fields have no change yet
	newer  *history.Change // the change before which the next version was
}

// newBlame returns the state for the object of now and the change that made it.
func newBlame(object map[string]any, c *history.Change) *blame {
	b := &blame{newer: c}
	for _, leaf := range history.Leaves(object) {
		b.fields = append(b.fields, ownedField{Leaf: leaf})
	}
	if b.open = len(b.fields); c.Type == history.Created {
		b.rest()
	}
	return b
}

// add compares with the next older version, which the change c made. It reports whether older ones are needed.
func (b *blame) add(object map[string]any, c *history.Change) (more bool) {
	values := map[string]any{}
	for _, leaf := range history.Leaves(object) {
		values[leaf.Path] = leaf.Value
	}
	for i := range b.fields {
		f := &b.fields[i]
		if f.change != nil {
			continue
		}
		if value, found := values[f.Path]; !found || !reflect.DeepEqual(value, f.Value) {
			f.change = b.newer
			b.open--
		}
	}
	if b.newer = c; c.Type == history.Created {
		b.rest()
	}
	return b.open > 0
}

// rest gives the fields that are left to the change that created the object.
func (b *blame) rest() {
	for i := range b.fields {
		if b.fields[i].change == nil {
			b.fields[i].change = b.newer
		}
	}
	b.open = 0
}

// valueText returns a value in one line of at most 60 characters.
func valueText(value any) string {
	const most = 60
	out, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	if text, ok := value.(string); ok && text != "" {
		out = []byte(text)
	}
	if text := []rune(string(out)); len(text) > most {
		return string(text[:most]) + "..."
	}
	return string(out)
}
