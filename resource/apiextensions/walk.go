package apiextensions

import (
	"bytes"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strconv"

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

// rewriteValues puts the defaults, examples and enumerated values of a definition into
// a form. Copies of a definition share values, so that these themselves stay as they are.
func rewriteValues(d *definition, form func(raw []byte) []byte) {
	for i := range d.Spec.Versions {
		rewrite(schemaOf(&d.Spec.Versions[i]), form)
	}
}

// rewrite does so in s and below, and says whether s changed.
func rewrite(s *props, form func(raw []byte) []byte) bool {
	if s == nil {
		return false
	}
	changed := rewriteValue(&s.Default, form)
	changed = rewriteValue(&s.Example, form) || changed
	for i := range s.Enum {
		if raw := form(s.Enum[i].Raw); !bytes.Equal(raw, s.Enum[i].Raw) {
			s.Enum, changed = slices.Clone(s.Enum), true
			s.Enum[i].Raw = raw
		}
	}
	for _, child := range []*props{s.Not, itemsOf(s)} {
		rewrite(child, form)
	}
	lists := [][]props{s.AllOf, s.AnyOf, s.OneOf}
	if s.Items != nil {
		lists = append(lists, s.Items.JSONSchemas)
	}
	for _, list := range lists {
		for i := range list {
			rewrite(&list[i], form)
		}
	}
	for _, named := range []map[string]props{s.Properties, s.PatternProperties, s.Definitions} {
		for name, child := range named {
			if rewrite(&child, form) {
				named[name] = child
			}
		}
	}
	for _, more := range []*apiextensionsv1.JSONSchemaPropsOrBool{s.AdditionalProperties, s.AdditionalItems} {
		if more != nil {
			rewrite(more.Schema, form)
		}
	}
	for _, d := range s.Dependencies {
		rewrite(d.Schema, form)
	}
	return changed
}

func rewriteValue(v **apiextensionsv1.JSON, form func(raw []byte) []byte) bool {
	if *v == nil {
		return false
	}
	raw := form((*v).Raw)
	if bytes.Equal(raw, (*v).Raw) {
		return false
	}
	*v = &apiextensionsv1.JSON{Raw: raw}
	return true
}

// unreadableValue says why one of the values is none, which its JSON does not tell: a
// number may be too large.
func unreadableValue(d *definition) error {
	for i := range d.Spec.Versions {
		for s := range schemas(schemaOf(&d.Spec.Versions[i])) {
			values := s.Enum
			for _, v := range []*apiextensionsv1.JSON{s.Default, s.Example} {
				if v != nil {
					values = append(values[:len(values):len(values)], *v)
				}
			}
			for _, v := range values {
				if _, err := decodeValue(v.Raw); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// canonical returns a JSON value as encoding what it decodes to writes it; raw itself
// where that is plain to see, or where raw is no JSON. Members come in order, whole
// numbers without a fraction.
func canonical(raw []byte) []byte {
	value, err := decodeValue(raw)
	if value == nil || err != nil {
		return raw
	}
	out, err := json.Marshal(value)
	if err != nil {
		return raw
	}
	return out
}

// ordered returns a JSON value in its canonical form, unless a number in it is an
// integer there that is none yet: until it is stored, 1.0 is a number to validation.
func ordered(raw []byte) []byte {
	if value, err := decodeValue(raw); err != nil || becomesInteger(value) {
		return raw
	}
	return canonical(raw)
}

// becomesInteger says whether a number in a value is not an integer, but is read as one
// once it was written.
func becomesInteger(value any) bool {
	switch v := value.(type) {
	case float64:
		text, err := json.Marshal(v)
		if err != nil {
			return false
		}
		_, err = strconv.ParseInt(string(text), 10, 64)
		return err == nil
	case []any:
		return slices.ContainsFunc(v, becomesInteger)
	case map[string]any:
		for _, member := range v {
			if becomesInteger(member) {
				return true
			}
		}
	}
	return false
}

// decodeValue decodes a JSON value. It is nil where raw is plainly canonical.
func decodeValue(raw []byte) (value any, err error) {
	if len(raw) == 0 || isPlain(raw) {
		return nil, nil
	}
	err = utiljson.Unmarshal(raw, &value)
	return value, err
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
