package apiextensions

import (
	"bytes"
	"encoding/json"
	"iter"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// properties goes through named schemas in the order of their names, so that
// causes come in one order.
func properties(named map[string]props) iter.Seq2[string, *props] {
	return func(yield func(string, *props) bool) {
		for _, name := range slices.Sorted(maps.Keys(named)) {
			s := named[name]
			if !yield(name, &s) {
				return
			}
		}
	}
}

// schemas goes through s and every schema below it, in whatever role. The schemas
// may be copies, and come in no order.
func schemas(s *props) iter.Seq[*props] {
	return func(yield func(*props) bool) { eachSchema(s, yield) }
}

func eachSchema(s *props, yield func(*props) bool) bool {
	return s == nil || yield(s) && eachBelow(s, yield)
}

func eachBelow(s *props, yield func(*props) bool) bool {
	return eachSchema(s.Not, yield) && eachOf(s.AllOf, yield) && eachOf(s.AnyOf, yield) && eachOf(s.OneOf, yield) && eachItem(s, yield) &&
		eachNamed(s.Properties, yield) && eachOrBool(s.AdditionalProperties, yield) &&
		eachNamed(s.PatternProperties, yield) && eachNamed(s.Definitions, yield) && eachOrBool(s.AdditionalItems, yield) && eachDependency(s, yield)
}

func eachItem(s *props, yield func(*props) bool) bool {
	return s.Items == nil || eachSchema(s.Items.Schema, yield) && eachOf(s.Items.JSONSchemas, yield)
}

func eachOf(list []props, yield func(*props) bool) bool {
	for i := range list {
		if !eachSchema(&list[i], yield) {
			return false
		}
	}
	return true
}

func eachNamed(named map[string]props, yield func(*props) bool) bool {
	for _, s := range named {
		if !eachSchema(&s, yield) {
			return false
		}
	}
	return true
}

func eachOrBool(o *apiextensionsv1.JSONSchemaPropsOrBool, yield func(*props) bool) bool {
	return o == nil || eachSchema(o.Schema, yield)
}

func eachDependency(s *props, yield func(*props) bool) bool {
	for _, d := range s.Dependencies {
		if !eachSchema(d.Schema, yield) {
			return false
		}
	}
	return true
}

// anySchema says whether a schema of the definition, in any role, has a property.
func anySchema(spec *definitionSpec, has func(*props) bool) bool {
	return slices.ContainsFunc(spec.Versions, func(v version) bool { return contains(schemaOf(&v), has) })
}

// contains says whether s, or a schema below it in any role, has a property.
func contains(s *props, has func(*props) bool) bool {
	return !eachSchema(s, func(s *props) bool { return !has(s) })
}

// schemaOf returns the version's schema, nil if it has none.
func schemaOf(v *version) *props {
	if v.Schema == nil {
		return nil
	}
	return v.Schema.OpenAPIV3Schema
}

// canonicalValues rewrites the defaults, examples and enumerated values of s and
// the schemas below it as the reference does, which decodes them: members in
// order, whole numbers without a fraction.
func canonicalValues(s *props) {
	// Members of maps are copies, but the values are shared through pointers and
	// slices.
	for s := range schemas(s) {
		for _, value := range []*apiextensionsv1.JSON{s.Default, s.Example} {
			if value != nil {
				value.Raw = canonical(value.Raw)
			}
		}
		for i := range s.Enum {
			s.Enum[i].Raw = canonical(s.Enum[i].Raw)
		}
	}
}

// canonical returns a JSON value as encoding what it decodes to writes it; raw
// itself where that is plain to see, or where raw is no JSON.
func canonical(raw []byte) []byte {
	if len(raw) == 0 || isPlain(raw) {
		return raw
	}
	var value any
	if err := utiljson.Unmarshal(raw, &value); err != nil {
		return raw
	}
	out, err := json.Marshal(value)
	if err != nil {
		return raw
	}
	return out
}

// isPlain says that raw is a literal, a short whole number, or a string of plain
// letters, which have one form only.
func isPlain(raw []byte) bool {
	const letters = " !#$%()*+,-./0123456789:;=?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~"
	switch {
	case raw[0] == '"':
		inner := bytes.TrimSuffix(raw[1:], []byte{'"'})
		return len(bytes.Trim(inner, letters)) == 0
	case raw[0] >= '1' && raw[0] <= '9':
		return len(raw) < 18 && len(bytes.Trim(raw, "0123456789")) == 0
	}
	return bytes.Equal(raw, []byte("true")) || bytes.Equal(raw, []byte("false")) || bytes.Equal(raw, []byte("0"))
}
