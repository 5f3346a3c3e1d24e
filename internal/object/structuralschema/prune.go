package structuralschema

import (
	"slices"
	"strconv"
)

// Prune removes, in place, the fields of tree that the schema does not specify, except below
// x-kubernetes-preserve-unknown-fields. If root is true, tree is a whole object and keeps apiVersion, kind and
// metadata; embedded resources always keep theirs. If report is true, Prune returns the sorted paths of the removed
// fields, written as strict decoding does: spec.list[0].field.
func (s *Schema) Prune(tree any, root, report bool) []string {
	p := pruner{report: report}
	p.value(tree, s, root || s != nil && s.EmbeddedResource)
	slices.Sort(p.dropped)
	return p.dropped
}

// pruner is a walk over an object that removes unknown fields.
type pruner struct {
	report  bool
	path    []byte
	dropped []string
}

// typeAndObjectMeta reports whether a field is one that every resource has.
func typeAndObjectMeta(name string) bool {
	return name == "apiVersion" || name == "kind" || name == "metadata"
}

// value removes unknown fields of x. A nil schema specifies no fields: in a value that "additionalProperties: true"
// allows, only scalars are kept.
func (p *pruner) value(x any, s *Schema, resource bool) {
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

// preserved walks a value whose unknown fields are kept. Specified fields are pruned again; items of a list keep
// their unknown fields.
func (p *pruner) preserved(x any, s *Schema, resource bool) {
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

// property reports whether the schema specifies a field, and returns its schema. The schema is nil below
// "additionalProperties: true" and also below "additionalProperties: false", where validation reports the field.
func (s *Schema) property(name string) (bool, *Schema) {
	if s == nil {
		return false, nil
	}
	if sub := s.Properties[name]; sub != nil {
		return true, sub
	}
	return s.AnyProperties || s.NoProperties || s.AdditionalProperties != nil, s.AdditionalProperties
}

func (p *pruner) below(v any, sub *Schema, name string) {
	switch v.(type) {
	case map[string]any, []any:
		n := p.field(name)
		p.value(v, sub, sub != nil && sub.EmbeddedResource)
		p.path = p.path[:n]
	}
}

func (p *pruner) drop(name string) {
	if !p.report {
		return
	}
	n := p.field(name)
	p.dropped = append(p.dropped, string(p.path))
	p.path = p.path[:n]
}

// field appends a field to the path, and returns the length that the path had before.
func (p *pruner) field(name string) int {
	n := len(p.path)
	if p.report {
		if n > 0 {
			p.path = append(p.path, '.')
		}
		p.path = append(p.path, name...)
	}
	return n
}

func (p *pruner) index(i int) int {
	n := len(p.path)
	if p.report {
		p.path = append(p.path, '[')
		p.path = strconv.AppendInt(p.path, int64(i), 10)
		p.path = append(p.path, ']')
	}
	return n
}

// DropNulls removes, in place, the fields that are null although the schema neither allows null nor has a default.
// Items of lists are kept.
func (s *Schema) DropNulls(tree any) {
	switch x := tree.(type) {
	case map[string]any:
		for name, v := range x {
			switch v.(type) {
			case nil:
				if _, sub := s.property(name); sub != nil && !sub.Nullable && !sub.HasDefault {
					delete(x, name)
				}
			case map[string]any, []any:
				if _, sub := s.property(name); sub != nil {
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
