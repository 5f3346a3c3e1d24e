package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A generator makes values by the schemas of OpenAPI v3.
type generator struct {
	schemas map[string]map[string]any // by name
}

// newGenerator returns a generator with the schemas of all documents.
func newGenerator(documents map[string]map[string]any) *generator {
	g := &generator{map[string]map[string]any{}}
	for _, doc := range documents {
		schemas, _ := dig(doc, "components", "schemas").(map[string]any)
		for name, s := range schemas {
			if m, ok := s.(map[string]any); ok {
				g.schemas[name] = m
			}
		}
	}
	return g
}

// schemaOf returns the schema of a kind, or nil.
func (g *generator) schemaOf(k kind) map[string]any {
	for _, name := range sortedNames(g.schemas) {
		for _, gvk := range items(g.schemas[name]["x-kubernetes-group-version-kind"]) {
			if text(gvk["group"]) == k.group && text(gvk["version"]) == k.version && text(gvk["kind"]) == k.kind {
				return g.schemas[name]
			}
		}
	}
	return nil
}

// resolve returns the schema that a reference names, with its name; a schema without a reference is returned as it is.
func (g *generator) resolve(schema map[string]any) (map[string]any, string) {
	if name := schemaName(schema); name != "" {
		return g.schemas[name], name
	}
	return schema, ""
}

// usual are values of types for which what the schema requires is not enough, by the end of the name of the schema.
var usual = map[string]string{
	"meta.v1.LabelSelector": `{"matchLabels":{"app":"sample"}}`,
	"core.v1.PodTemplateSpec": `{"metadata":{"labels":{"app":"sample"}},
		"spec":{"containers":[{"name":"main","image":"example.com/image:1"}]}}`,
	"core.v1.Container":                  `{"name":"main","image":"example.com/image:1"}`,
	"core.v1.VolumeResourceRequirements": `{"requests":{"storage":"1Gi"}}`,
	"meta.v1.MicroTime":                  `"2030-01-02T03:04:05.000000Z"`,
	"apiextensions.v1.JSONSchemaProps":   `{"type":"object"}`,
}

// value returns a value of a schema: of an object, what is required; of an enumeration, its first value.
func (g *generator) value(schema map[string]any) any { return g.valueBelow(schema, nil) }

func (g *generator) valueBelow(schema map[string]any, above []string) any {
	resolved, name := g.resolve(schema)
	for suffix, content := range usual {
		if strings.HasSuffix(name, suffix) {
			var v any
			if decode([]byte(content), &v) != nil {
				panic("the usual value of " + suffix + " is no JSON")
			}
			return v
		}
	}
	if name != "" {
		if slices.Contains(above, name) {
			return map[string]any{}
		}
		above = append(slices.Clip(above), name)
	}
	if values, ok := resolved["enum"].([]any); ok && len(values) > 0 {
		for _, v := range values {
			if v != "" {
				return v
			}
		}
	}
	switch text(resolved["type"]) {
	case "object":
		properties, ok := resolved["properties"].(map[string]any)
		if !ok {
			if values, ok := resolved["additionalProperties"].(map[string]any); ok {
				return map[string]any{"a": g.valueBelow(values, above)}
			}
			return map[string]any{}
		}
		out := map[string]any{}
		required, _ := resolved["required"].([]any)
		for _, r := range required {
			if s, ok := properties[text(r)].(map[string]any); ok {
				out[text(r)] = g.valueBelow(s, above)
			}
		}
		return out
	case "array":
		of, _ := resolved["items"].(map[string]any)
		return []any{g.valueBelow(of, above)}
	case "integer", "number":
		return json.Number("1")
	case "boolean":
		return true
	case "string":
		switch text(resolved["format"]) {
		case "date-time":
			return "2030-01-02T03:04:05Z"
		case "byte":
			return "YQ=="
		}
		return "x"
	}
	if strings.HasSuffix(name, "resource.Quantity") {
		return "1"
	}
	if resolved["oneOf"] != nil || text(resolved["format"]) == "int-or-string" {
		return json.Number("1")
	}
	return map[string]any{}
}

// A step of a path is the name of a member or the position in a list.
type step struct {
	name  string
	index int // used if name is empty
}

// A fieldPath is a place in an object.
type fieldPath []step

func (p fieldPath) String() string {
	var b strings.Builder
	for i, s := range p {
		switch {
		case s.name == "":
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case i > 0:
			b.WriteString("." + s.name)
		default:
			b.WriteString(s.name)
		}
	}
	return b.String()
}

var pathPart = regexp.MustCompile(`^\.?([A-Za-z0-9_$-]+)|^\[(\d+)\]|^\[([^\]]*)\]`)

// parsePath reads a path as causes of a Status have it, as spec.containers[0].image. ok is false if it is no such path.
func parsePath(s string) (out fieldPath, ok bool) {
	for s != "" {
		m := pathPart.FindStringSubmatch(s)
		switch {
		case m == nil:
			return nil, false
		case m[1] != "":
			out = append(out, step{name: m[1]})
		case m[2] != "":
			n, err := strconv.Atoi(m[2])
			if err != nil {
				return nil, false
			}
			out = append(out, step{index: n})
		default:
			out = append(out, step{name: m[3]})
		}
		s = s[len(m[0]):]
	}
	return out, len(out) > 0
}

// schemaAt returns the schema at a path below a schema, or nil.
func (g *generator) schemaAt(schema map[string]any, path fieldPath) map[string]any {
	for _, s := range path {
		schema, _ = g.resolve(schema)
		if s.name == "" {
			schema, _ = schema["items"].(map[string]any)
		} else if properties, ok := schema["properties"].(map[string]any); ok {
			schema, _ = properties[s.name].(map[string]any)
		} else {
			schema, _ = schema["additionalProperties"].(map[string]any)
		}
		if schema == nil {
			return nil
		}
	}
	return schema
}

// set sets a value at a path of v, a value of schema, and returns the new v. What is missing above the path is made by the
// schema. ok is false if the path does not fit.
func (g *generator) set(v any, schema map[string]any, path fieldPath, value any) (out any, ok bool) {
	if len(path) == 0 {
		return value, true
	}
	resolved, _ := g.resolve(schema)
	if v == nil {
		v = g.value(schema)
	}
	below := g.schemaAt(resolved, path[:1])
	if below == nil {
		return v, false
	}
	first := path[0]
	switch x := v.(type) {
	case map[string]any:
		if first.name == "" {
			return v, false
		}
		x[first.name], ok = g.set(x[first.name], below, path[1:], value)
		return x, ok
	case []any:
		if first.name != "" || first.index > len(x) {
			return v, false
		}
		if first.index == len(x) {
			x = append(x, nil)
		}
		x[first.index], ok = g.set(x[first.index], below, path[1:], value)
		return x, ok
	}
	return v, false
}

// fields returns the paths below a schema with a value for each, in the order of their names: of members, of the first
// elements of lists, and of objects within those. depth is how many names a path has at most. The members of a schema in
// itself are left out.
func (g *generator) fields(schema map[string]any, depth int) []fieldValue {
	return g.fieldsBelow(schema, nil, depth, nil)
}

// A fieldValue is a value to set.
type fieldValue struct {
	path  fieldPath
	value any
}

func (g *generator) fieldsBelow(schema map[string]any, path fieldPath, depth int, above []string) (out []fieldValue) {
	resolved, name := g.resolve(schema)
	if name != "" {
		if slices.Contains(above, name) {
			return nil
		}
		above = append(slices.Clip(above), name)
	}
	if len(path) > 0 {
		out = append(out, fieldValue{path, g.value(schema)})
	}
	if properties, ok := resolved["properties"].(map[string]any); ok && depth > 0 {
		for _, name := range sortedNames(properties) {
			if below, ok := properties[name].(map[string]any); ok {
				out = append(out, g.fieldsBelow(below, append(slices.Clip(path), step{name: name}), depth-1, above)...)
			}
		}
	}
	if of, ok := resolved["items"].(map[string]any); ok && depth > 0 {
		if below := g.fieldsBelow(of, append(slices.Clip(path), step{index: 0}), depth, above); len(below) > 1 {
			out = append(out, below[1:]...) // the first is the element itself, which is in the list's value
		}
	}
	return out
}
