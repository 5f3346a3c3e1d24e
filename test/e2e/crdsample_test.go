package e2e

import (
	"regexp"
	"strings"
)

// candidates are strings to try with the patterns in real definitions.
var candidates = []string{
	"a", "example", "example.com", "1", "80", "10.0.0.1", "10.0.0.0/24", "http://example.com", "https://example.com", "/",
	"/a", "1h", "1m", "10s", "5m0s", "1Gi", "100m",
	"v1.30.0", "1.2.3", "A", "ABC", "example.com/a", "a/b", "a.b.c", "a=b", "Always", "*", "2026-01-02", "00:00",
	"* * * * *", "1.5", "0x1", "sha256:" + hexDigits, hexDigits, "arn:aws:iam::123456789012:role/a",
	"2001:db8::1", "00:11:22:33:44:55", "80-90", "monday", "january", "0", "50%", "projects/a/secrets/b", "urn:a",
	"12345678-1234-1234-1234-123456789012", "a@b.c", "1KB", "EXAMPLE_KEY",
}

const hexDigits = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// maker makes values that fit the schemas in a definition.
type maker struct {
	full  bool // whether every field is made, or only required ones
	depth int  // the deepest level of optional fields
}

// deepest is the maximal depth of full values.
const deepest = 7

// minimalObject and fullObject make an object for a version of a definition, without a status.
func minimalObject(definition, version map[string]any) map[string]any {
	return (&maker{}).object(definition, version)
}

func fullObject(definition, version map[string]any) map[string]any {
	return (&maker{full: true}).object(definition, version)
}

func (m *maker) object(definition, version map[string]any) map[string]any {
	spec := definition["spec"].(map[string]any)
	schema, _ := dig(version, "schema", "openAPIV3Schema").(map[string]any)
	out, _ := m.value(schema, 0).(map[string]any)
	if out == nil {
		out = map[string]any{}
	}
	delete(out, "status")
	if spec, _ := dig(schema, "properties", "spec").(map[string]any); spec != nil && out["spec"] == nil {
		out["spec"] = m.value(spec, 1)
	}
	out["apiVersion"] = spec["group"].(string) + "/" + version["name"].(string)
	out["kind"] = dig(spec, "names", "kind")
	out["metadata"] = map[string]any{"name": "sample"}
	return out
}

// statusOf makes a status for a version, or nil if it has none.
func statusOf(version map[string]any) any {
	schema, _ := dig(version, "schema", "openAPIV3Schema", "properties", "status").(map[string]any)
	if schema == nil {
		return nil
	}
	return (&maker{}).value(schema, 0)
}

func dig(v any, names ...string) any {
	for _, name := range names {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func isSet(schema map[string]any, name string) bool { b, _ := schema[name].(bool); return b }

func (m *maker) value(schema map[string]any, depth int) any {
	if v, ok := schema["default"]; ok {
		return v
	}
	if values, _ := schema["enum"].([]any); len(values) > 0 {
		for _, v := range values {
			if v != "" {
				return v
			}
		}
		return values[0]
	}
	if isSet(schema, "x-kubernetes-embedded-resource") {
		return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "embedded"}}
	}
	if isSet(schema, "x-kubernetes-int-or-string") {
		return fitting(schema)
	}
	switch schema["type"] {
	case "array":
		return m.list(schema, depth)
	case "string":
		return fitting(schema)
	case "integer", "number":
		return smallest(schema)
	case "boolean":
		return true
	}
	return m.fields(schema, depth)
}

func (m *maker) list(schema map[string]any, depth int) any {
	n, _ := schema["minItems"].(float64)
	if m.full && depth < deepest {
		n = max(n, 1)
	}
	items, _ := schema["items"].(map[string]any)
	out := []any{}
	for range int(n) {
		out = append(out, m.value(items, depth+1))
	}
	return out
}

func smallest(schema map[string]any) any {
	n, _ := schema["minimum"].(float64)
	if _, ok := schema["minimum"]; !ok {
		n = 1
		if most, ok := schema["maximum"].(float64); ok {
			n = min(n, most)
		}
	}
	if isSet(schema, "exclusiveMinimum") {
		n++
	}
	if schema["type"] == "integer" {
		return int64(n)
	}
	return n
}

func (m *maker) fields(schema map[string]any, depth int) any {
	out := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range m.needed(schema) {
		if property, _ := properties[name].(map[string]any); property != nil {
			out[name] = m.value(property, depth+1)
		}
	}
	least, _ := schema["minProperties"].(float64)
	if m.full && depth < deepest {
		for name, property := range properties {
			if _, ok := out[name]; !ok {
				out[name] = m.value(property.(map[string]any), depth+1)
			}
		}
		least = max(least, 1)
	}
	if values, _ := schema["additionalProperties"].(map[string]any); values != nil && len(out) < int(least) {
		out["example"] = m.value(values, depth+1)
	}
	for _, name := range sorted(properties) {
		if len(out) >= int(least) {
			break
		}
		if _, ok := out[name]; !ok {
			out[name] = m.value(properties[name].(map[string]any), depth+1)
		}
	}
	return out
}

// needed returns the fields that a schema requires, by itself or by the first of its alternatives.
func (m *maker) needed(schema map[string]any) []string {
	out := stringsOf(schema["required"])
	for _, junctor := range []string{"allOf", "anyOf", "oneOf"} {
		alternatives, _ := schema[junctor].([]any)
		if junctor != "allOf" {
			for _, a := range alternatives {
				if _, no := a.(map[string]any)["not"]; no {
					alternatives = nil // a value without any of them is valid, too
				}
			}
			alternatives = alternatives[:min(1, len(alternatives))]
		}
		for _, a := range alternatives {
			out = append(out, m.needed(a.(map[string]any))...)
		}
	}
	return out
}

func stringsOf(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, s := range list {
		out = append(out, s.(string))
	}
	return out
}

// fitting returns a string (or a number, if allowed) that is valid by the schema.
func fitting(schema map[string]any) any {
	switch schema["format"] {
	case "date-time":
		return "2026-01-02T03:04:05Z"
	case "date":
		return "2026-01-02"
	case "duration":
		return "1h"
	case "byte":
		return "YQ=="
	case "ipv4":
		return "10.0.0.1"
	case "ipv6":
		return "2001:db8::1"
	case "uri":
		return "https://example.com"
	case "hostname":
		return "example.com"
	}
	if pattern, ok := schema["pattern"].(string); ok {
		if isSet(schema, "x-kubernetes-int-or-string") {
			return "1"
		}
		re, err := regexp.Compile(pattern)
		least, _ := schema["minLength"].(float64)
		for _, c := range candidates {
			if err == nil && re.MatchString(c) && len(c) >= int(least) {
				return c
			}
		}
	}
	least, _ := schema["minLength"].(float64)
	return strings.Repeat("a", max(1, int(least)))
}
