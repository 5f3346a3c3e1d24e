package apiextensions

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/structural"
	"github.com/keelson-dev/keelson/structural/rules"
)

// ruleTexts checks what the rules of a schema say beside their expressions.
func (c *schemaChecker) ruleTexts(s *props, path *field.Path) {
	if !c.texts {
		return
	}
	var fields *structural.Schema
	if unsupported(s) == "" {
		fields = outline(s)
	}
	c.errs = append(c.errs, rules.CheckTexts(path, s.XValidations, fields)...)
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
