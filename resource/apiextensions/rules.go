package apiextensions

import (
	"github.com/keelson-dev/keelson/structural"
	"github.com/keelson-dev/keelson/structural/rules"
)

// ruleTexts checks what rules say beside their expressions. Those of a schema that
// can be read are checked with them.
func (c *schemaChecker) ruleTexts() {
	for _, r := range c.ruled {
		var fields *structural.Schema
		if unsupported(r.schema) == "" {
			fields = outline(r.schema)
		}
		c.errs = append(c.errs, rules.CheckTexts(r.path, r.schema.XValidations, fields)...)
	}
}

// outline is the fields of a schema that has no unsupported members but need not be
// structural, with their types.
func outline(s *props) *structural.Schema {
	out := &structural.Schema{Type: s.Type}
	if len(s.Properties) > 0 {
		out.Properties = make(map[string]*structural.Schema, len(s.Properties))
		for name, child := range properties(s.Properties) {
			out.Properties[name] = outline(child)
		}
	}
	if a := s.AdditionalProperties; a != nil {
		out.AnyProperties = a.Schema == nil
		if a.Schema != nil {
			out.AdditionalProperties = outline(a.Schema)
		}
	}
	return out
}
