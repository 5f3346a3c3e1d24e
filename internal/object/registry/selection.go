package registry

// Selection holds the fields by which lists and watches of a kind select.
type Selection struct {
	// Fields are the selectable fields beside metadata.name and metadata.namespace.
	Fields []Field
	// FieldError makes the answer to an unknown field label; nil is that of most kinds.
	FieldError func(version, label string) error
}

// indexed returns the fields that the cache has an index of.
func (s *Selection) indexed() []*Field {
	var out []*Field
	for i := range s.Fields {
		if s.Fields[i].Index {
			out = append(out, &s.Fields[i])
		}
	}
	return out
}

// Field is a selectable field. It is read from the stored protobuf without
// decoding the object.
type Field struct {
	// Name is the field's label, e.g. "spec.nodeName".
	Name string
	// Path holds the protobuf field numbers from the object to the value; the
	// value of a repeated field is the first one.
	Path []int32
	// Members is the path in custom resources: the names of members
	// from the object to a value that is no object or list.
	Members []string
	// Type says how the value reads as text.
	Type FieldType
	// Default is the value when the field is absent ("" for strings).
	Default string
	// Index keeps a secondary index, and posting lists for its watchers.
	Index bool
	// Get replaces Path where no path leads to the value. Its argument is of the
	// storage version.
	Get func(Object) string
}

// FieldType says how a field's wire value reads as text.
type FieldType int

const (
	String FieldType = iota
	Bool             // "true" or "false"; absent is Default, or "false"
	Int              // decimal; absent is Default, or "0"
)
