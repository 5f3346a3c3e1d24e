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

// properties iterates over schemas in the order of their names, so that errors have a fixed
// order.
// The schemas are copies, so changes of them do not reach the map.
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

// schemas iterates over s and all schemas in it, in no particular order. The schemas may be
// copies.
func schemas(s *props) iter.Seq[*props] {
	return func(yield func(*props) bool) { eachSchema(s, yield) }
}

// eachSchema calls yield for s and all schemas in it until yield returns false. It reports whether yield has
// always returned true. The functions below do the same for one kind of member each.
func eachSchema(s *props, yield func(*props) bool) bool {
	return s == nil || yield(s) && eachBelow(s, yield)
}

func eachBelow(s *props, yield func(*props) bool) bool {
	return eachSchema(s.Not, yield) && eachOf(s.AllOf, yield) && eachOf(s.AnyOf, yield) && eachOf(s.OneOf, yield) &&
		eachItem(s, yield) &&
		eachNamed(s.Properties, yield) && eachOrBool(s.AdditionalProperties, yield) &&
		eachNamed(s.PatternProperties, yield) && eachNamed(s.Definitions, yield) && eachOrBool(s.AdditionalItems, yield) &&
		eachDependency(s, yield)
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

// anySchemaMatches reports whether has returns true for any schema of the definition.
func anySchemaMatches(spec *definitionSpec, has func(*props) bool) bool {
	return slices.ContainsFunc(spec.Versions, func(v version) bool { return containsSchema(schemaOf(&v), has) })
}

// containsSchema reports whether has returns true for s or any schema in it.
func containsSchema(s *props, has func(*props) bool) bool {
	return !eachSchema(s, func(s *props) bool { return !has(s) })
}

// schemaOf returns the schema of the version, nil if it has none.
func schemaOf(v *version) *props {
	if v.Schema == nil {
		return nil
	}
	return v.Schema.OpenAPIV3Schema
}

// rewriteValues replaces the defaults, examples and enum values in a definition by
// form(value). Copies of a definition share these values, so the values themselves are not
// changed.
func rewriteValues(d *definition, form func(raw []byte) []byte) {
	for i := range d.Spec.Versions {
		rewrite(schemaOf(&d.Spec.Versions[i]), form)
	}
}

// rewrite does the same for s and all schemas in it, and reports whether s has changed.
func rewrite(s *props, form func(raw []byte) []byte) bool {
	if s == nil {
		return false
	}
	changed := rewriteValue(&s.Default, form)
	changed = rewriteValue(&s.Example, form) || changed
	for i := range s.Enum {
		if raw := form(s.Enum[i].Raw); !bytes.Equal(raw, s.Enum[i].Raw) {
			// The clone keeps the list of other copies of the definition as it was. The next values are compared
			// in the clone.
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
		// child is a copy, which is only put back if it has changed. Replacing the value of a present key during
		// the iteration is safe in Go.
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

// checkValuesReadable returns an error if one of the values is valid JSON that cannot be
// decoded, because a number is too large.
func checkValuesReadable(d *definition) error {
	for i := range d.Spec.Versions {
		for s := range schemas(schemaOf(&d.Spec.Versions[i])) {
			values := s.Enum
			for _, v := range []*apiextensionsv1.JSON{s.Default, s.Example} {
				if v != nil {
					// The capacity is limited to the length, so that append copies the list and does not write
					// behind s.Enum.
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

// canonical returns a JSON value in the canonical encoding: with sorted members, and without a
// fraction in whole numbers. It returns raw unchanged if it is canonical already or not valid
// JSON.
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

// canonicalUnlessInteger returns the canonical encoding of a JSON value. It returns raw
// unchanged if that would turn a number with a fraction into an integer: 1.0 is validated as a
// number until it is stored.
func canonicalUnlessInteger(raw []byte) []byte {
	if value, err := decodeValue(raw); err != nil || hasFloatThatBecomesInteger(value) {
		return raw
	}
	return canonical(raw)
}

// hasFloatThatBecomesInteger reports whether value contains a number that is not an integer
// now, but is one after encoding and decoding.
// For example, 1.0 is encoded as 1, and 1e3 as 1000. 1.5 stays a fraction.
func hasFloatThatBecomesInteger(value any) bool {
	switch v := value.(type) {
	case float64:
		text, err := json.Marshal(v)
		if err != nil {
			return false
		}
		_, err = strconv.ParseInt(string(text), 10, 64)
		return err == nil
	case []any:
		return slices.ContainsFunc(v, hasFloatThatBecomesInteger)
	case map[string]any:
		for _, member := range v {
			if hasFloatThatBecomesInteger(member) {
				return true
			}
		}
	}
	return false
}

// decodeValue decodes a JSON value. It returns nil if raw is plain (see isPlain).
func decodeValue(raw []byte) (value any, err error) {
	if len(raw) == 0 || isPlain(raw) {
		return nil, nil
	}
	err = utiljson.Unmarshal(raw, &value)
	return value, err
}

// isPlain reports whether raw has only one possible encoding: a literal, a short whole number,
// or a string of ASCII letters.
func isPlain(raw []byte) bool {
	// json.Marshal escapes none of these letters. The quote, the backslash, &, < and > are missing, because it
	// escapes them. The apostrophe is missing too, although it needs no escape.
	// Numbers with at most 17 digits fit in an int64 and are encoded as they are.
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
