// Package sample makes random structural schemas and objects for tests that compare a package with a slower
// implementation.
package sample

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Source makes random schemas and values.
type Source struct {
	*rand.Rand
	// Depth is the maximal nesting of schemas.
	Depth int
}

// New returns a Source. The same seed gives the same schemas and values.
func New(seed uint64) *Source {
	return &Source{Rand: rand.New(rand.NewPCG(seed, 1)), Depth: 3}
}

var names = []string{"a", "b", "c", "d", "key", "apiVersion"}

func pick[T any](s *Source, all ...T) T { return all[s.IntN(len(all))] }

func sorted(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

func (s *Source) one(in int) bool { return s.IntN(in) == 0 }

// Schema returns the JSON schema of an object of a kind, as decoded JSON.
func (s *Source) Schema() map[string]any {
	root := s.object(s.Depth)
	delete(root, "additionalProperties")
	delete(root, "default")
	properties, _ := root["properties"].(map[string]any)
	if properties == nil {
		properties = map[string]any{}
		root["properties"] = properties
	}
	delete(properties, "apiVersion")
	properties["spec"] = s.object(s.Depth)
	return root
}

func (s *Source) node(depth int) map[string]any {
	n := map[string]any{}
	kind := s.IntN(10)
	if depth <= 0 {
		kind = 4 + s.IntN(6)
	}
	switch kind {
	case 0, 1:
		n = s.object(depth)
	case 2, 3:
		n = s.array(depth)
	case 4:
		n["x-kubernetes-preserve-unknown-fields"] = true
		if s.one(2) {
			n["properties"] = map[string]any{"a": s.node(depth - 1)}
		}
	case 5:
		n = s.intOrString()
	case 6:
		n["type"] = "boolean"
	default:
		n["type"] = pick(s, "string", "string", "integer", "number")
		s.restrict(n, n["type"].(string), 2)
	}
	if s.one(6) {
		n["nullable"] = true
	}
	if s.one(5) {
		n["default"] = s.Value(n)
	}
	return n
}

func (s *Source) object(depth int) map[string]any {
	n := map[string]any{"type": "object"}
	switch s.IntN(7) {
	case 0:
		n["additionalProperties"] = s.node(depth - 1)
	case 1:
		n["additionalProperties"] = pick(s, true, false)
	default:
		properties := map[string]any{}
		for range 1 + s.IntN(3) {
			name := pick(s, names...)
			properties[name] = s.node(depth - 1)
			if name == "apiVersion" {
				properties[name] = map[string]any{"type": "string"}
			}
		}
		n["properties"] = properties
		if s.one(8) {
			n["x-kubernetes-embedded-resource"] = true
			delete(properties, "metadata")
		}
	}
	if s.one(6) {
		n["x-kubernetes-preserve-unknown-fields"] = true
	}
	if s.one(6) {
		n["x-kubernetes-map-type"] = pick(s, "atomic", "granular")
	}
	s.restrict(n, "object", 2)
	return n
}

func (s *Source) array(depth int) map[string]any {
	n := map[string]any{"type": "array"}
	switch s.IntN(4) {
	case 0:
		n["x-kubernetes-list-type"] = "map"
		n["x-kubernetes-list-map-keys"] = pick(s, []any{"key"}, []any{"key", "a"})
		item := s.object(depth - 1)
		delete(item, "additionalProperties")
		properties, _ := item["properties"].(map[string]any)
		if properties == nil {
			properties = map[string]any{}
			item["properties"] = properties
		}
		properties["key"] = map[string]any{"type": "string", "maxLength": 2}
		properties["a"] = map[string]any{"type": "integer", "default": 1}
		n["items"] = item
	case 1:
		n["x-kubernetes-list-type"] = pick(s, "set", "atomic")
		n["items"] = map[string]any{"type": pick(s, "string", "integer", "number")}
	default:
		n["items"] = s.node(depth - 1)
	}
	s.restrict(n, "array", 2)
	return n
}

func (s *Source) intOrString() map[string]any {
	n := map[string]any{"x-kubernetes-int-or-string": true}
	types := []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}
	switch s.IntN(4) {
	case 0:
		n["anyOf"] = types
	case 1:
		n["allOf"] = []any{map[string]any{"anyOf": types}, map[string]any{"pattern": "^[0-9]"}}
	case 2:
		n["maximum"] = s.IntN(10)
		n["pattern"] = "^[0-9]+%$"
	}
	if s.one(5) {
		n["format"] = pick(s, "ipv4", "int32", "int-or-string")
	}
	return n
}

// restrict adds conditions for values of a type.
func (s *Source) restrict(n map[string]any, typ string, junctors int) {
	for _, name := range keywords(typ) {
		if s.one(5) {
			n[name] = s.keyword(name, typ, n)
		}
	}
	if junctors == 0 {
		return
	}
	for _, name := range []string{"anyOf", "oneOf", "allOf"} {
		if s.one(9) {
			var all []any
			for range 1 + s.IntN(3) {
				all = append(all, s.condition(n, typ, junctors-1))
			}
			n[name] = all
		}
	}
	if s.one(12) {
		n["not"] = s.condition(n, typ, junctors-1)
	}
}

// condition returns a condition of a combinator for the node n.
func (s *Source) condition(n map[string]any, typ string, junctors int) map[string]any {
	c := map[string]any{}
	s.restrict(c, typ, junctors)
	properties, _ := n["properties"].(map[string]any)
	for _, name := range sorted(properties) {
		sub, _ := properties[name].(map[string]any)
		if typ, ok := sub["type"].(string); ok && s.one(2) {
			if c["properties"] == nil {
				c["properties"] = map[string]any{}
			}
			c["properties"].(map[string]any)[name] = s.condition(sub, typ, 0)
		}
	}
	if items, ok := n["items"].(map[string]any); ok && s.one(2) {
		if typ, ok := items["type"].(string); ok {
			c["items"] = s.condition(items, typ, 0)
		}
	}
	if len(c) == 0 && typ == "object" && s.one(4) {
		c["additionalProperties"] = false
	}
	return c
}

func keywords(typ string) []string {
	switch typ {
	case "object":
		return []string{"required", "minProperties", "maxProperties"}
	case "array":
		return []string{"minItems", "maxItems", "uniqueItems"}
	case "string":
		return []string{"minLength", "maxLength", "pattern", "format", "enum"}
	case "integer", "number":
		return []string{"minimum", "maximum", "multipleOf", "format", "enum", "exclusiveMinimum", "exclusiveMaximum"}
	}
	return nil
}

func (s *Source) keyword(name, typ string, n map[string]any) any {
	switch name {
	case "required":
		return []any{pick(s, names...), pick(s, names...)}
	case "pattern":
		return pick(s, "^[a-z]+$", "1", "x*")
	case "format":
		if typ == "string" {
			return pick(s, "date", "date-time", "ipv4", "byte", "nonsense", "int32", "uuid", "k8s-short-name")
		}
		return pick(s, "int32", "int64", "float", "double", "ipv4", "nonsense")
	case "enum":
		if typ == "string" {
			return []any{"x", "1", "ab"}
		}
		return pick(s, []any{1, 2, 2.5}, []any{0}, []any{1.5, nil})
	case "uniqueItems", "exclusiveMinimum", "exclusiveMaximum":
		return true
	case "multipleOf":
		return pick[any](s, 1, 2, 0.5, 0.1, 3)
	case "minimum", "maximum":
		if typ == "number" || s.one(10) {
			return pick[any](s, 0.5, 2.5, -1, 1e20)
		}
		return s.IntN(5) - 1
	}
	return s.IntN(4)
}

// Value returns a value that is valid by the schema in most cases.
func (s *Source) Value(n map[string]any) any {
	if s.one(12) {
		return s.any(2)
	}
	if n["x-kubernetes-int-or-string"] != nil {
		return s.scalar(pick(s, "integer", "string"))
	}
	typ, _ := n["type"].(string)
	switch typ {
	case "object":
		return s.fields(n)
	case "array":
		items, _ := n["items"].(map[string]any)
		out := []any{}
		for range s.IntN(4) {
			out = append(out, s.Value(items))
		}
		return out
	case "":
		if n["properties"] != nil {
			return s.fields(n)
		}
		return s.any(2)
	}
	return s.scalar(typ)
}

func (s *Source) fields(n map[string]any) any {
	out := map[string]any{}
	properties, _ := n["properties"].(map[string]any)
	for _, name := range sorted(properties) {
		if !s.one(3) {
			out[name] = s.Value(properties[name].(map[string]any))
		}
	}
	switch more := n["additionalProperties"].(type) {
	case map[string]any:
		for range s.IntN(3) {
			out[pick(s, names...)] = s.Value(more)
		}
	case bool:
		if s.one(2) {
			out["b"] = s.any(1)
		}
	}
	if s.one(6) {
		out[pick(s, "x", "d")] = s.any(1)
	}
	if n["x-kubernetes-embedded-resource"] != nil {
		out["apiVersion"] = pick[any](s, "v1", "a/b/c", "", 5)
		out["kind"] = pick[any](s, "Kind", "bad kind", "")
		if s.one(2) {
			out["metadata"] = s.Metadata()
		}
	}
	return out
}

// Object returns an object of the kind that the schema describes.
func (s *Source) Object(schema map[string]any) map[string]any {
	out, _ := s.fields(schema).(map[string]any)
	out["apiVersion"], out["kind"] = "example.com/v1", "Sample"
	out["metadata"] = s.Metadata()
	return out
}

// Metadata returns metadata with some wrong, unknown or empty fields.
func (s *Source) Metadata() any {
	if s.one(20) {
		return s.any(1)
	}
	out := map[string]any{"name": "x"}
	choices := map[string][]any{
		"namespace":         {"y", ""},
		"labels":            {map[string]any{"a": "b"}, map[string]any{}, map[string]any{"a": nil}, nil},
		"annotations":       {map[string]any{"a": ""}, map[string]any{"a": 1}, "x"},
		"generation":        {1, 0, "1", 1.5},
		"creationTimestamp": {"2020-01-02T03:04:05Z", nil, "2020-01-02T03:04:05+01:00", "x"},
		"finalizers":        {[]any{"f"}, []any{}, []any{nil}, []any{1}},
		"ownerReferences": {
			[]any{map[string]any{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}},
			[]any{map[string]any{"name": "n", "controller": true}}, []any{nil},
		},
		"deletionGracePeriodSeconds": {0, nil, "x"},
		"managedFields": {[]any{
			map[string]any{"manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2020-01-02T03:04:05Z", "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:a": map[string]any{}}},
		},
			[]any{map[string]any{"manager": "", "fieldsV1": nil}}, []any{}},
		"unknown": {1, map[string]any{"a": 1}},
	}
	for _, name := range []string{
		"namespace", "labels", "annotations", "generation", "creationTimestamp", "finalizers", "ownerReferences",
		"deletionGracePeriodSeconds", "managedFields", "unknown",
	} {
		if s.one(6) {
			out[name] = pick(s, choices[name][:1+s.IntN(len(choices[name]))]...)
		}
	}
	return out
}

func (s *Source) scalar(typ string) any {
	switch typ {
	case "boolean":
		return s.one(2)
	case "integer":
		return pick[any](s, 0, 1, 2, 3, -1, 5, 65, 1.5, 3e9, 1<<40)
	case "number":
		return pick[any](s, 0, 1, 0.5, 2.5, 0.3, 1e30, -1.5, 1e300, 1.0000000001)
	}
	return pick(s, "", "x", "ab", "1", "abc1", "ééé", "2020-01-01", "1.2.3.4", "10%")
}

func (s *Source) any(depth int) any {
	switch s.IntN(8) {
	case 0:
		return nil
	case 1, 2:
		if depth > 0 {
			return map[string]any{pick(s, names...): s.any(depth - 1)}
		}
	case 3:
		if depth > 0 {
			return []any{s.any(depth - 1), s.any(depth - 1)}
		}
	}
	return s.scalar(pick(s, "string", "integer", "number", "boolean"))
}

// Change returns a copy of v with a random change.
func (s *Source) Change(v any) any {
	if s.one(12) {
		return s.any(1)
	}
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, name := range sorted(v) {
			sub := v[name]
			if s.one(6) {
				sub = s.Change(sub)
			}
			if !s.one(20) {
				out[name] = sub
			}
		}
		return out
	case []any:
		out := append([]any{}, v...)
		if len(out) > 0 && s.one(2) {
			i := s.IntN(len(out))
			out[i] = s.Change(out[i])
		}
		if s.one(3) {
			s.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		}
		if s.one(6) {
			out = append(out, s.any(1))
		}
		return out
	}
	return v
}
