package celrules

import (
	"maps"
	"sync"

	"k8s.io/apiserver/pkg/cel/common"

	"github.com/keelson-dev/keelson/internal/object/structuralschema"
)

// schemaView presents a schema to the libraries of the expression language, which derive types and values from it.
// Its children are created at the first access and kept, because values access them often. It may be used by
// several goroutines.
type schemaView struct {
	schema *structuralschema.Schema
	values *structuralschema.Values // never nil

	expandOnce sync.Once
	items      common.Schema
	properties map[string]common.Schema
	additional common.SchemaOrBool

	resourceOnce sync.Once
	resource     *schemaView
}

func newView(s *structuralschema.Schema) *schemaView {
	v := &schemaView{schema: s, values: s.Values}
	if v.values == nil {
		v.values = &structuralschema.Values{}
	}
	return v
}

// visible reports whether rules can access a value of the schema. Its type, and for a list or map the type of its
// elements, must be known.
func visible(s *structuralschema.Schema) bool {
	switch {
	case s.IntOrString:
		return true
	case s.Type == "array":
		return s.Items != nil && visible(s.Items)
	case s.Type == "object":
		return s.AdditionalProperties == nil || visible(s.AdditionalProperties)
	}
	return s.Type != ""
}

func (v *schemaView) expand() {
	v.expandOnce.Do(func() {
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

// mapValues is the value of additionalProperties: a schema, or anything if schema is nil.
type mapValues struct{ schema *schemaView }

func (m mapValues) Schema() common.Schema {
	if m.schema == nil {
		return nil
	}
	return m.schema
}

func (m mapValues) Allows() bool { return m.schema == nil }

func (v *schemaView) Items() common.Schema {
	v.expand()
	return v.items
}

func (v *schemaView) Properties() map[string]common.Schema {
	v.expand()
	return v.properties
}

func (v *schemaView) AdditionalProperties() common.SchemaOrBool {
	v.expand()
	return v.additional
}

// WithTypeAndObjectMeta returns the schema with the fields of a resource: apiVersion, kind, metadata.name and
// metadata.generateName.
func (v *schemaView) WithTypeAndObjectMeta() common.Schema { return v.ofResource() }

func (v *schemaView) ofResource() *schemaView {
	v.resourceOnce.Do(func() {
		v.resource = v
		if !hasResourceFields(v.schema) {
			v.resource = newView(withResourceFields(v.schema))
		}
	})
	return v.resource
}

func hasResourceFields(s *structuralschema.Schema) bool {
	is := func(s *structuralschema.Schema, name, typ string) bool {
		p := s.Properties[name]
		return p != nil && p.Type == typ
	}
	return is(s, "apiVersion", "string") && is(s, "kind", "string") && is(s, "metadata", "object") &&
		is(s.Properties["metadata"], "name", "string") && is(s.Properties["metadata"], "generateName", "string")
}

func withResourceFields(s *structuralschema.Schema) *structuralschema.Schema {
	text := &structuralschema.Schema{Type: "string"}
	c := *s
	c.Items = nil
	c.Properties = maps.Clone(s.Properties)
	if c.Properties == nil {
		c.Properties = map[string]*structuralschema.Schema{}
	}
	c.Properties["apiVersion"] = text
	c.Properties["kind"] = text
	c.Properties["metadata"] = &structuralschema.Schema{
		Type:       "object",
		Properties: map[string]*structuralschema.Schema{"name": text, "generateName": text},
	}
	return &c
}

func (v *schemaView) Type() string { return v.schema.Type }

func (v *schemaView) Default() any {
	if !v.schema.HasDefault {
		return nil
	}
	return v.schema.Default
}

func (v *schemaView) Nullable() bool                 { return v.schema.Nullable }
func (v *schemaView) IsXIntOrString() bool           { return v.schema.IntOrString }
func (v *schemaView) IsXEmbeddedResource() bool      { return v.schema.EmbeddedResource }
func (v *schemaView) IsXPreserveUnknownFields() bool { return v.schema.PreserveUnknownFields }
func (v *schemaView) XListType() string              { return v.schema.ListType }
func (v *schemaView) XListMapKeys() []string         { return v.schema.ListMapKeys }
func (v *schemaView) XMapType() string               { return v.schema.MapType }

func (v *schemaView) Format() string           { return v.values.Format }
func (v *schemaView) Pattern() string          { return v.values.Pattern }
func (v *schemaView) Minimum() *float64        { return v.values.Minimum }
func (v *schemaView) IsExclusiveMinimum() bool { return v.values.ExclusiveMinimum }
func (v *schemaView) Maximum() *float64        { return v.values.Maximum }
func (v *schemaView) IsExclusiveMaximum() bool { return v.values.ExclusiveMaximum }
func (v *schemaView) MultipleOf() *float64     { return v.values.MultipleOf }
func (v *schemaView) MinItems() *int64         { return v.values.MinItems }
func (v *schemaView) MaxItems() *int64         { return v.values.MaxItems }
func (v *schemaView) MinLength() *int64        { return v.values.MinLength }
func (v *schemaView) MaxLength() *int64        { return v.values.MaxLength }
func (v *schemaView) MinProperties() *int64    { return v.values.MinProperties }
func (v *schemaView) MaxProperties() *int64    { return v.values.MaxProperties }
func (v *schemaView) Required() []string       { return v.values.Required }
func (v *schemaView) Enum() []any              { return v.values.Enum }
func (v *schemaView) UniqueItems() bool        { return v.values.UniqueItems }

// AllOf returns nothing, and neither do the following methods: types and values do not depend on combinators or rules.
func (v *schemaView) AllOf() []common.Schema                { return nil }
func (v *schemaView) AnyOf() []common.Schema                { return nil }
func (v *schemaView) OneOf() []common.Schema                { return nil }
func (v *schemaView) Not() common.Schema                    { return nil }
func (v *schemaView) XValidations() []common.ValidationRule { return nil }
