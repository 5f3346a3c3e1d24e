package apiextensions

import (
	"github.com/keelson-dev/keelson/internal/object/structuralschema"
	"github.com/keelson-dev/keelson/internal/object/structuralschema/celrules"
)

// checkRuleTexts validates the parts of rules other than their expressions. The expressions of
// a structural schema are validated together with the schema.
// A schema with an unsupported member gets nil as its fields, so a fieldPath is not compared with the schema
// there.
func (c *schemaChecker) checkRuleTexts() {
	for _, r := range c.ruled {
		var fields *structuralschema.Schema
		if unsupported(r.schema) == "" {
			fields = fieldTypes(r.schema)
		}
		c.add(celrules.CheckTexts(r.path.K8s(), r.schema.XValidations, fields))
	}
}

// fieldTypes returns a schema with only the fields and types of s. s must not have unsupported
// members, but need not be structural.
func fieldTypes(s *props) *structuralschema.Schema {
	out := &structuralschema.Schema{Type: s.Type}
	if len(s.Properties) > 0 {
		out.Properties = make(map[string]*structuralschema.Schema, len(s.Properties))
		for name, child := range properties(s.Properties) {
			out.Properties[name] = fieldTypes(child)
		}
	}
	if a := s.AdditionalProperties; a != nil {
		out.AnyProperties = a.Schema == nil
		if a.Schema != nil {
			out.AdditionalProperties = fieldTypes(a.Schema)
		}
	}
	return out
}
