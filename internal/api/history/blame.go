package history

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ObjectBlame is the answer of the subresource blame: which change gave each field of an object its value. The resourceVersion of the
// list is the version of the object that the fields are of.
type ObjectBlame struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	UID             types.UID `json:"uid,omitempty"`
	// Deletion is the change that deleted the object; the fields are those that it had last. It is nil if the object exists.
	Deletion *Change `json:"deletion,omitempty"`
	// Changes are the changes that the fields name, the newest first.
	Changes []Change      `json:"changes"`
	Fields  []BlamedField `json:"fields"`
	// MoreFields is the number of fields that are left out because the answer would be too large.
	MoreFields int `json:"moreFields,omitempty"`
	// NotExamined says why older changes were not examined, although they are kept.
	NotExamined string `json:"notExamined,omitempty"`
}

// BlamedField is a field that has no fields below it.
type BlamedField struct {
	Path string `json:"path"`
	// ResourceVersion is that of the change which gave the field its value, "" if that is older than what was examined.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Value is the value, if the request asks for values.
	Value any `json:"value,omitempty"`
}

// maxBlamed is how many bytes of paths an ObjectBlame has at most: a small object may have many fields below a long path.
const maxBlamed = 8 << 20

// Blame finds which change gave each field of an object its value. It gets the versions of the object from the newest to the oldest: a
// field belongs to the oldest change since which all versions have the value of the first one.
//
// Example: versions {a:1 b:2}, {a:1 b:1}, {a:0 b:1} (created): b belongs to the newest change, a to the second one.
type Blame struct {
	fields []blamed
	open   int // how many fields have no change yet
	// newer is the change that made the version that was added last.
	newer   *Change
	changes []*Change // those that fields belong to
}

type blamed struct {
	Leaf
	change *Change // nil while it is not known
}

// Add compares a version with the newer ones, and reports whether an older one is needed. c made the version; it must not be changed
// afterwards.
func (b *Blame) Add(object map[string]any, c *Change) (more bool) {
	leaves := Leaves(object)
	if b.newer == nil {
		for _, leaf := range leaves {
			b.fields = append(b.fields, blamed{Leaf: leaf})
		}
		b.open = len(b.fields)
	} else {
		b.compare(leaves)
	}
	if b.newer = c; c.Type == Created {
		b.settle(func(*blamed) bool { return true })
	}
	return b.open > 0
}

// compare gives the fields that leaves do not have, or have with another value, to the change after the version of leaves.
func (b *Blame) compare(leaves []Leaf) {
	values := make(map[string]any, len(leaves))
	for _, leaf := range leaves {
		values[leaf.Path] = leaf.Value
	}
	b.settle(func(f *blamed) bool {
		value, found := values[f.Path]
		return !found || !reflect.DeepEqual(value, f.Value)
	})
}

// settle gives fields without a change, for which mine returns true, to the newest change that was added last.
func (b *Blame) settle(mine func(*blamed) bool) {
	before := b.open
	for i := range b.fields {
		if f := &b.fields[i]; f.change == nil && mine(f) {
			f.change = b.newer
			b.open--
		}
	}
	if b.open < before {
		b.changes = append(b.changes, b.newer)
	}
}

// Answer returns what was found, without kind and version.
func (b *Blame) Answer(values bool) *ObjectBlame {
	out := &ObjectBlame{Changes: []Change{}, Fields: []BlamedField{}}
	for _, c := range b.changes {
		shown := *c
		shown.Changed, shown.MoreChanged = nil, 0
		out.Changes = append(out.Changes, shown)
	}
	bytes := 0
	for i := range b.fields {
		f := &b.fields[i]
		if bytes += len(f.Path); bytes > maxBlamed {
			out.MoreFields = len(b.fields) - i
			break
		}
		field := BlamedField{Path: f.Path}
		if f.change != nil {
			field.ResourceVersion = f.change.ResourceVersion
		}
		if values {
			field.Value = f.Value
		}
		out.Fields = append(out.Fields, field)
	}
	return out
}
