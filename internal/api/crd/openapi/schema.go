package openapi

import (
	"reflect"
	"slices"
)

// dialect is a version of OpenAPI. Documents of version 2 lack the parts that its clients, mainly kubectl, would
// misunderstand.
type dialect int

const (
	v2 dialect = iota
	v3
)

func (d dialect) ref(model string) string {
	if d == v2 {
		return "#/definitions/" + model
	}
	return "#/components/schemas/" + model
}

// reference returns a reference to a definition, with its own description.
func (d dialect) reference(model, description string) map[string]any {
	if d == v2 {
		return map[string]any{"$ref": d.ref(model), "description": description}
	}
	return map[string]any{"allOf": []any{map[string]any{"$ref": d.ref(model)}}, "description": description}
}

// The members of a schema that are published unchanged, by type. A member with the zero value of its type is left
// out.
var (
	textMembers = []string{
		"type", "description", "title", "format", "pattern", "x-kubernetes-list-type", "x-kubernetes-map-type",
	}
	numberMembers = []string{
		"maximum", "minimum", "multipleOf", "maxLength", "minLength", "maxItems", "minItems", "maxProperties",
		"minProperties",
	}
	boolMembers = []string{
		"nullable", "exclusiveMaximum", "exclusiveMinimum", "uniqueItems", "x-kubernetes-preserve-unknown-fields",
		"x-kubernetes-embedded-resource", "x-kubernetes-int-or-string",
	}
	listMembers  = []string{"required", "enum", "x-kubernetes-list-map-keys", "x-kubernetes-validations"}
	valueMembers = []string{"default", "example"}
)

// copyPlainMembers copies the members that contain no schemas. It shares their values with s.
func copyPlainMembers(s map[string]any) map[string]any {
	out := make(map[string]any, len(s))
	for _, name := range textMembers {
		if v, ok := s[name].(string); ok && v != "" {
			out[name] = v
		}
	}
	for _, name := range boolMembers {
		if v, ok := s[name].(bool); ok && v {
			out[name] = v
		}
	}
	for _, name := range listMembers {
		if v, ok := s[name].([]any); ok && len(v) > 0 {
			out[name] = v
		}
	}
	for _, names := range [][]string{numberMembers, valueMembers} {
		for _, name := range names {
			if v, ok := s[name]; ok && v != nil {
				out[name] = v
			}
		}
	}
	if v, ok := s["externalDocs"].(map[string]any); ok {
		docs := map[string]any{}
		for _, name := range []string{"description", "url"} {
			if t, ok := v[name].(string); ok && t != "" {
				docs[name] = t
			}
		}
		out["externalDocs"] = docs
	}
	return out
}

// publish returns the schema in the documents for a structural schema.
func (d dialect) publish(s map[string]any) map[string]any {
	out := copyPlainMembers(s)
	properties, _ := s["properties"].(map[string]any)
	items, _ := s["items"].(map[string]any)
	if d == v2 {
		properties, items = simplify(out, s, properties, items)
	} else {
		addCombinators(out, s)
	}
	if len(properties) > 0 {
		out["properties"] = mapProperties(properties, d.publish)
	}
	if items != nil {
		out["items"] = d.publish(items)
	}
	switch a := s["additionalProperties"].(type) {
	case bool:
		out["additionalProperties"] = a
	case map[string]any:
		out["additionalProperties"] = d.publish(a)
	}
	if out["x-kubernetes-embedded-resource"] == true && !(d == v2 && out["x-kubernetes-preserve-unknown-fields"] == true) {
		d.embed(out)
	}
	return out
}

// mapProperties returns the results of do for each schema of a map.
func mapProperties(of map[string]any, do func(map[string]any) map[string]any) map[string]any {
	out := make(map[string]any, len(of))
	for name, value := range of {
		s, _ := value.(map[string]any)
		out[name] = do(s)
	}
	return out
}

// simplify removes from a schema what OpenAPI version 2 cannot express or kubectl misunderstands: kubectl assumes
// that an object with properties has no others, that an array has items, and that a value with a type is not null.
// It returns the properties and items that remain.
func simplify(out, s, properties, items map[string]any) (map[string]any, map[string]any) {
	delete(out, "default")
	nullable, preserve := out["nullable"] == true, out["x-kubernetes-preserve-unknown-fields"] == true
	delete(out, "nullable")
	if nullable || preserve {
		properties, items = nil, nil
	}
	if nullable || items == nil && out["type"] == "array" || preserve && out["type"] == "object" {
		delete(out, "type")
	}
	required, _ := out["required"].([]any)
	required = slices.DeleteFunc(slices.Clone(required), func(name any) bool {
		key, _ := name.(string)
		property, _ := properties[key].(map[string]any)
		return property["nullable"] == true
	})
	if values, _ := s["additionalProperties"].(map[string]any); values["nullable"] == true || len(required) == 0 {
		delete(out, "required")
	} else {
		out["required"] = required
	}
	return properties, items
}

// addCombinators adds allOf, anyOf, oneOf and not (addConditions). For an int-or-string, anyOf also lists its two
// types.
func addCombinators(out, s map[string]any) {
	addConditions(out, s)
	if out["x-kubernetes-int-or-string"] != true || isIntOrString(s["anyOf"]) {
		return
	}
	all, _ := s["allOf"].([]any)
	if len(all) > 0 {
		if first, _ := all[0].(map[string]any); isIntOrString(first["anyOf"]) {
			return
		}
	}
	if out["anyOf"] == nil {
		out["anyOf"] = intOrString()
		return
	}
	rest, _ := out["allOf"].([]any)
	out["allOf"] = append([]any{map[string]any{"anyOf": intOrString()}}, rest...)
}

// addConditions adds allOf, anyOf, oneOf and not.
func addConditions(out, s map[string]any) {
	for _, name := range []string{"allOf", "anyOf", "oneOf"} {
		if of := conditions(s[name]); of != nil {
			out[name] = of
		}
	}
	if not, ok := s["not"].(map[string]any); ok {
		out["not"] = condition(not)
	}
}

func intOrString() []any {
	return []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}
}

func isIntOrString(anyOf any) bool { return reflect.DeepEqual(anyOf, any(intOrString())) }

func conditions(list any) []any {
	of, _ := list.([]any)
	if len(of) == 0 {
		return nil
	}
	out := make([]any, len(of))
	for i, value := range of {
		s, _ := value.(map[string]any)
		out[i] = condition(s)
	}
	return out
}

// condition returns the published schema below allOf, anyOf, oneOf or not. additionalProperties is never published
// there.
func condition(s map[string]any) map[string]any {
	out := copyPlainMembers(s)
	addConditions(out, s)
	if items, ok := s["items"].(map[string]any); ok {
		out["items"] = condition(items)
	}
	if properties, ok := s["properties"].(map[string]any); ok && len(properties) > 0 {
		out["properties"] = mapProperties(properties, condition)
	}
	return out
}

// embed adds apiVersion, kind and metadata to the schema of an embedded resource.
func (d dialect) embed(s map[string]any) {
	const docs = " More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
	p := properties(s)
	p["apiVersion"] = text(
		"apiVersion defines the versioned schema of this representation of an object." + docs + "#resources",
	)
	p["kind"] = text("kind is a string value representing the type of this object. In CamelCase." + docs + "#types-kinds")
	p["metadata"] = d.reference(objectMetaModel, partialObjectDoc("metadata"))
	required, _ := s["required"].([]any)
	required = slices.Clone(required)
	for _, name := range []any{"kind", "apiVersion"} {
		if !slices.Contains(required, name) {
			required = append(required, name)
		}
	}
	s["required"] = required
}
