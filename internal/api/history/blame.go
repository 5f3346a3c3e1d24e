package history

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ObjectBlame is the answer of the subresource blame: which change gave each field of an object its value. The
// fields are those of the version of the object that the resourceVersion of the list names.
type ObjectBlame struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	UID             types.UID `json:"uid,omitempty"`
	// Deletion is the change that deleted the object; Fields then has the last fields of the object. It is nil if
	// the object exists.
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
	// ResourceVersion names the change that gave the field its value. It is "" if that change is older than what was examined.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Value is the value, if the request asks for values.
	Value any `json:"value,omitempty"`
}

const (
	// maxBlamed limits the bytes of all paths in an ObjectBlame. A small object may have many fields below a long
	// path.
	maxBlamed = 8 << 20
	// fieldMemory is about how many bytes a field takes in addition to its path: in a Blame, in the answer, and in
	// the text of the answer.
	fieldMemory = 130
)

// Blame finds which change gave each field of an object its value. It gets the versions from the newest to the
// oldest. A field belongs to the oldest change after which all versions have the value of the newest version.
//
// Example: versions {a:1 b:2}, {a:1 b:1}, {a:0 b:1} (created): b belongs to the newest change, a to the second
// one.
type Blame struct {
	// Hold counts memory before it is taken, and refuses it with an error. It may be nil.
	Hold func(bytes int) error

	object map[string]any // the first version
	fields []blamed       // its first leaves, in their order
	more   int            // how many further leaves it has
	open   int            // how many fields have no change yet
	// newer is the change that made the version that was added last.
	newer   *Change
	changes []*Change // those that fields belong to
}

type blamed struct {
	path   string
	value  any
	change *Change // nil while it is not known
}

// Add compares a version with the newer ones, and reports whether an older one is needed. c is the change that
// made the version; the caller must not change it afterwards.
func (b *Blame) Add(object map[string]any, c *Change) (more bool, err error) {
	if b.newer == nil {
		if err := b.begin(object); err != nil {
			return false, err
		}
	} else {
		b.compare(object)
	}
	if b.newer = c; c.Type == Created {
		for i := range b.fields {
			if f := &b.fields[i]; f.change == nil {
				b.give(f)
			}
		}
	}
	return b.open > 0, nil
}

// begin takes the fields of the first version. It makes paths only for the fields that the answer shows.
func (b *Blame) begin(object map[string]any) error {
	fields, bytes := 0, 0
	eachLeaf(object, nil, func(path []byte, _, _ any, _ bool) bool {
		if b.more > 0 || bytes+len(path) > maxBlamed {
			b.more++
		} else {
			fields, bytes = fields+1, bytes+len(path)
		}
		return true
	})
	if b.Hold != nil {
		if err := b.Hold(fields*fieldMemory + 2*bytes); err != nil { // the text of the answer has each path again
			return err
		}
	}
	b.object, b.fields, b.open = object, make([]blamed, 0, fields), fields
	eachLeaf(object, nil, func(path []byte, v, _ any, _ bool) bool {
		b.fields = append(b.fields, blamed{path: string(path), value: v})
		return len(b.fields) < fields
	})
	return nil
}

// compare compares the first version with an older one. If the older version does not have a field, or has another
// value, then the change that was added last gave the field its value.
func (b *Blame) compare(older map[string]any) {
	next := 0
	eachLeaf(b.object, older, func(_ []byte, v, was any, there bool) bool {
		f := &b.fields[next]
		if next++; f.change == nil && !(there && reflect.DeepEqual(v, was)) {
			b.give(f)
		}
		return next < len(b.fields)
	})
}

// give gives a field to the change that was added last.
func (b *Blame) give(f *blamed) {
	if n := len(b.changes); n == 0 || b.changes[n-1] != b.newer {
		b.changes = append(b.changes, b.newer)
	}
	f.change = b.newer
	b.open--
}

// Answer returns what was found, without kind and version.
func (b *Blame) Answer(values bool) *ObjectBlame {
	out := &ObjectBlame{Changes: []Change{}, Fields: make([]BlamedField, 0, len(b.fields)), MoreFields: b.more}
	for _, c := range b.changes {
		shown := *c
		shown.Changed, shown.MoreChanged = nil, 0
		out.Changes = append(out.Changes, shown)
	}
	for i := range b.fields {
		f := &b.fields[i]
		field := BlamedField{Path: f.path}
		if f.change != nil {
			field.ResourceVersion = f.change.ResourceVersion
		}
		if values {
			field.Value = f.value
		}
		out.Fields = append(out.Fields, field)
	}
	return out
}
