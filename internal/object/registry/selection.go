package registry

// Selection holds the fields by which lists and watches of a kind select.
type Selection struct {
	// Fields are the selectable fields other than metadata.name and metadata.namespace.
	Fields []Field
	// FieldError returns the error for an unknown field label; nil means the error of most kinds.
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
	// from the object to a value that is neither an object nor a list.
	Members []string
	// Type is the type of the value.
	Type FieldType
	// Default is the value when the field is absent ("" for strings).
	Default string
	// Index keeps a secondary index, and posting lists for its watchers.
	Index bool
	// Get returns the value if no Path leads to it. Its argument is in the storage version.
	Get func(Object) string
}

// FieldType determines how the encoded value of a field is converted to text.
type FieldType int

const (
	String FieldType = iota
	Bool             // "true" or "false"; absent is Default, or "false"
	Int              // decimal; absent is Default, or "0"
)
