package structural

import (
	"slices"
	"strconv"
)

// Prune drops the fields of tree that the schema does not specify, but for those
// below x-kubernetes-preserve-unknown-fields. If root, tree is an object of the
// kind: its apiVersion, kind and metadata stay untouched, as do those of embedded
// resources. If report, it returns the paths of what was dropped, sorted, as
// strict decoding names them: spec.list[0].field.
func (s *Schema) Prune(tree any, root, report bool) []string {
	p := pruning{report: report}
	p.value(tree, s, root || s != nil && s.EmbeddedResource)
	slices.Sort(p.dropped)
	return p.dropped
}

// pruning is a walk that drops fields.
type pruning struct {
	report  bool
	path    []byte
	dropped []string
}

// typeAndObjectMeta says whether a field of a resource is one that all have.
func typeAndObjectMeta(name string) bool {
	return name == "apiVersion" || name == "kind" || name == "metadata"
}

// value drops fields of x. A nil schema knows no fields: where
// "additionalProperties: true" allows any value, only scalars survive.
func (p *pruning) value(x any, s *Schema, resource bool) {
	if s != nil && s.PreserveUnknownFields {
		p.preserved(x, s, resource)
		return
	}
	switch x := x.(type) {
	case map[string]any:
		for name, v := range x {
			if resource && typeAndObjectMeta(name) {
				continue
			}
			known, sub := s.property(name)
			if !known {
				p.drop(name)
				delete(x, name)
				continue
			}
			p.below(v, sub, name)
		}
	case []any:
		var items *Schema
		if s != nil {
			items = s.Items
		}
		for i, v := range x {
			n := p.index(i)
			p.value(v, items, items != nil && items.EmbeddedResource)
			p.path = p.path[:n]
		}
	}
}

// preserved goes through a value whose unknown fields stay. Pruning begins again
// where fields are specified; items of an array are preserved with it.
func (p *pruning) preserved(x any, s *Schema, resource bool) {
	if s == nil {
		return
	}
	switch x := x.(type) {
	case map[string]any:
		for name, v := range x {
			if resource && typeAndObjectMeta(name) {
				continue
			}
			if known, sub := s.property(name); known {
				p.below(v, sub, name)
			}
		}
	case []any:
		for i, v := range x {
			n := p.index(i)
			p.preserved(v, s.Items, s.Items != nil && s.Items.EmbeddedResource)
			p.path = p.path[:n]
		}
	}
}

// property says whether the schema knows a field of that name, and its schema, which
// is nil where any value is allowed, and where none is: that is for validation to say.
func (s *Schema) property(name string) (bool, *Schema) {
	if s == nil {
		return false, nil
	}
	if sub := s.Properties[name]; sub != nil {
		return true, sub
	}
	return s.AnyProperties || s.NoProperties || s.AdditionalProperties != nil, s.AdditionalProperties
}

func (p *pruning) below(v any, sub *Schema, name string) {
	switch v.(type) {
	case map[string]any, []any:
		n := p.field(name)
		p.value(v, sub, sub != nil && sub.EmbeddedResource)
		p.path = p.path[:n]
	}
}

func (p *pruning) drop(name string) {
	if !p.report {
		return
	}
	n := p.field(name)
	p.dropped = append(p.dropped, string(p.path))
	p.path = p.path[:n]
}

// field appends a field to the path, and returns the length from before.
func (p *pruning) field(name string) int {
	n := len(p.path)
	if p.report {
		if n > 0 {
			p.path = append(p.path, '.')
		}
		p.path = append(p.path, name...)
	}
	return n
}

func (p *pruning) index(i int) int {
	n := len(p.path)
	if p.report {
		p.path = append(p.path, '[')
		p.path = strconv.AppendInt(p.path, int64(i), 10)
		p.path = append(p.path, ']')
	}
	return n
}

// DropNulls drops the fields that are null where null is neither allowed nor
// replaced by a default. Items of arrays stay.
func (s *Schema) DropNulls(tree any) {
	switch x := tree.(type) {
	case map[string]any:
		for name, v := range x {
			_, sub := s.property(name)
			switch v.(type) {
			case nil:
				if sub != nil && !sub.Nullable && !sub.HasDefault {
					delete(x, name)
				}
			case map[string]any, []any:
				if sub != nil {
					sub.DropNulls(v)
				}
			}
		}
	case []any:
		if s != nil && s.Items != nil {
			for _, v := range x {
				s.Items.DropNulls(v)
			}
		}
	}
}
