package rules

import (
	"maps"
	"sync"

	"k8s.io/apiserver/pkg/cel/common"

	"github.com/keelson-dev/keelson/structural"
)

// A view shows a schema to the libraries of the expression language, which make
// types and values by it. What is below is made when first asked for and kept: values
// ask for it at every access. It may be used by several goroutines.
type view struct {
	schema *structural.Schema
	values *structural.Values // never nil

	below      sync.Once
	items      common.Schema
	properties map[string]common.Schema
	additional common.SchemaOrBool

	typed    sync.Once
	resource *view
}

func newView(s *structural.Schema) *view {
	v := &view{schema: s, values: s.Values}
	if v.values == nil {
		v.values = &structural.Values{}
	}
	return v
}

// exposed reports whether rules can see a value of the schema: its type must be
// known all the way down a list or a map.
func exposed(s *structural.Schema) bool {
	switch {
	case s.IntOrString:
		return true
	case s.Type == "array":
		return s.Items != nil && exposed(s.Items)
	case s.Type == "object":
		return s.AdditionalProperties == nil || exposed(s.AdditionalProperties)
	}
	return s.Type != ""
}

func (v *view) expand() {
	v.below.Do(func() {
		s := v.schema
		if s.Items != nil {
			v.items = newView(s.Items)
		}
		if s.Properties != nil {
			v.properties = make(map[string]common.Schema, len(s.Properties))
			for name, p := range s.Properties {
				v.properties[name] = newView(p)
			}
		}
		switch {
		case s.AdditionalProperties != nil:
			v.additional = mapValues{newView(s.AdditionalProperties)}
		case s.AnyProperties:
			v.additional = mapValues{}
		}
	})
}

// mapValues is what additionalProperties says: the schema of the values, or anything.
type mapValues struct{ schema *view }

func (m mapValues) Schema() common.Schema {
	if m.schema == nil {
		return nil
	}
	return m.schema
}

func (m mapValues) Allows() bool { return m.schema == nil }

func (v *view) Items() common.Schema {
	v.expand()
	return v.items
}

func (v *view) Properties() map[string]common.Schema {
	v.expand()
	return v.properties
}

func (v *view) AdditionalProperties() common.SchemaOrBool {
	v.expand()
	return v.additional
}

// WithTypeAndObjectMeta returns the view of the schema as that of a whole resource:
// apiVersion, kind, metadata.name and metadata.generateName are always there.
func (v *view) WithTypeAndObjectMeta() common.Schema { return v.ofResource() }

func (v *view) ofResource() *view {
	v.typed.Do(func() {
		v.resource = v
		if !hasResourceFields(v.schema) {
			v.resource = newView(withResourceFields(v.schema))
		}
	})
	return v.resource
}

func hasResourceFields(s *structural.Schema) bool {
	is := func(s *structural.Schema, name, typ string) bool {
		p := s.Properties[name]
		return p != nil && p.Type == typ
	}
	return is(s, "apiVersion", "string") && is(s, "kind", "string") && is(s, "metadata", "object") &&
		is(s.Properties["metadata"], "name", "string") && is(s.Properties["metadata"], "generateName", "string")
}

func withResourceFields(s *structural.Schema) *structural.Schema {
	text := &structural.Schema{Type: "string"}
	c := *s
	c.Items = nil
	c.Properties = maps.Clone(s.Properties)
	if c.Properties == nil {
		c.Properties = map[string]*structural.Schema{}
	}
	c.Properties["apiVersion"] = text
	c.Properties["kind"] = text
	c.Properties["metadata"] = &structural.Schema{
		Type:       "object",
		Properties: map[string]*structural.Schema{"name": text, "generateName": text},
	}
	return &c
}

func (v *view) Type() string { return v.schema.Type }

func (v *view) Default() any {
	if !v.schema.HasDefault {
		return nil
	}
	return v.schema.Default
}

func (v *view) Nullable() bool                 { return v.schema.Nullable }
func (v *view) IsXIntOrString() bool           { return v.schema.IntOrString }
func (v *view) IsXEmbeddedResource() bool      { return v.schema.EmbeddedResource }
func (v *view) IsXPreserveUnknownFields() bool { return v.schema.PreserveUnknownFields }
func (v *view) XListType() string              { return v.schema.ListType }
func (v *view) XListMapKeys() []string         { return v.schema.ListMapKeys }
func (v *view) XMapType() string               { return v.schema.MapType }

func (v *view) Format() string           { return v.values.Format }
func (v *view) Pattern() string          { return v.values.Pattern }
func (v *view) Minimum() *float64        { return v.values.Minimum }
func (v *view) IsExclusiveMinimum() bool { return v.values.ExclusiveMinimum }
func (v *view) Maximum() *float64        { return v.values.Maximum }
func (v *view) IsExclusiveMaximum() bool { return v.values.ExclusiveMaximum }
func (v *view) MultipleOf() *float64     { return v.values.MultipleOf }
func (v *view) MinItems() *int64         { return v.values.MinItems }
func (v *view) MaxItems() *int64         { return v.values.MaxItems }
func (v *view) MinLength() *int64        { return v.values.MinLength }
func (v *view) MaxLength() *int64        { return v.values.MaxLength }
func (v *view) MinProperties() *int64    { return v.values.MinProperties }
func (v *view) MaxProperties() *int64    { return v.values.MaxProperties }
func (v *view) Required() []string       { return v.values.Required }
func (v *view) Enum() []any              { return v.values.Enum }
func (v *view) UniqueItems() bool        { return v.values.UniqueItems }

// Types and values do not depend on combinators, nor on rules.
func (v *view) AllOf() []common.Schema                { return nil }
func (v *view) AnyOf() []common.Schema                { return nil }
func (v *view) OneOf() []common.Schema                { return nil }
func (v *view) Not() common.Schema                    { return nil }
func (v *view) XValidations() []common.ValidationRule { return nil }
