package e2e

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// openAPI holds the schemas of one OpenAPI v3 document, by name.
type openAPI map[string]tree

// ofKind returns the schema of a kind, nil if the document has none.
func (o openAPI) ofKind(group, version, kind string) tree {
	for _, name := range sorted(o) {
		list, _ := o[name]["x-kubernetes-group-version-kind"].([]any)
		for _, item := range list {
			if gvk, _ := item.(tree); gvk["group"] == group && gvk["version"] == version && gvk["kind"] == kind {
				return o[name]
			}
		}
	}
	return nil
}

// resolve follows the references of a schema. It returns the name of the last one, "" if there is none.
func (o openAPI) resolve(schema tree) (tree, string) {
	name := ""
	for range 4 {
		if all, _ := schema["allOf"].([]any); len(all) == 1 {
			schema, _ = all[0].(tree)
			continue
		}
		ref, _ := schema["$ref"].(string)
		if ref == "" {
			break
		}
		name = ref[strings.LastIndexByte(ref, '/')+1:]
		schema = o[name]
	}
	return schema, name
}

// slot is a field, a list element or a map entry that an object has or could have.
type slot struct {
	path    []any // names of members and indexes of elements
	schema  tree
	present bool
}

// slots returns the slots of an object of a schema, without apiVersion, kind and metadata. For absent fields it goes
// most levels deep at most, and never twice into the same type.
func (o openAPI) slots(schema tree, object map[string]any) []slot {
	var out []slot
	var walk func(schema tree, value any, present bool, path []any, absent []string)
	walk = func(schema tree, value any, present bool, path []any, absent []string) {
		const most = 7
		schema, name := o.resolve(schema)
		if len(path) > 0 {
			out = append(out, slot{slices.Clone(path), schema, present})
		}
		if !present {
			if slices.Contains(absent, name) && name != "" || len(absent) >= most {
				return
			}
			absent = append(slices.Clone(absent), name)
		}
		if properties, _ := schema["properties"].(tree); properties != nil {
			members, _ := value.(map[string]any)
			for _, key := range sorted(properties) {
				if len(path) == 0 && (key == "apiVersion" || key == "kind" || key == "metadata") {
					continue
				}
				v, there := members[key]
				property, _ := properties[key].(tree)
				walk(property, v, there, append(slices.Clone(path), key), absent)
			}
			return
		}
		if items, _ := schema["items"].(tree); items != nil {
			list, _ := value.([]any)
			for i := range min(len(list), 3) {
				walk(items, list[i], true, append(slices.Clone(path), i), absent)
			}
			walk(items, nil, false, append(slices.Clone(path), len(list)), absent)
		}
		if values, _ := schema["additionalProperties"].(tree); values != nil {
			members, _ := value.(map[string]any)
			for _, key := range sorted(members) {
				walk(values, members[key], true, append(slices.Clone(path), key), absent)
			}
		}
	}
	walk(schema, object, true, nil, nil)
	return out
}

// variants makes variants of objects of one kind.
type variants struct {
	doc    openAPI
	schema tree
	rng    *rand.Rand
}

// of returns a copy of an object that differs in one or two places, and describes the changes. If part is not "", most
// changes are in that top-level field.
func (v *variants) of(object map[string]any, part string) (map[string]any, string) {
	out := clone(object).(map[string]any)
	how := v.change(out, part)
	for v.rng.IntN(3) == 0 {
		how += "; " + v.change(out, part)
	}
	return out, how
}

// change changes an object in one place.
func (v *variants) change(object map[string]any, part string) string {
	if v.rng.IntN(12) == 0 {
		return v.changeMetadata(object)
	}
	all := v.doc.slots(v.schema, object)
	present := v.rng.IntN(2) == 0
	inPart := part != "" && v.rng.IntN(10) > 0
	fitting := slices.DeleteFunc(slices.Clone(all), func(s slot) bool {
		return s.present != present || inPart && s.path[0] != part || part == "" && s.path[0] == "status" && v.rng.IntN(8) > 0
	})
	if len(fitting) == 0 {
		if fitting = all; len(all) == 0 {
			return v.changeMetadata(object)
		}
	}
	s := oneOf(v.rng, fitting...)
	if s.present && v.rng.IntN(5) == 0 {
		remove(object, s.path)
		return "without " + pathText(s.path)
	}
	v.put(object, s.path, v.value(s.schema, lastName(s.path)))
	return "set " + pathText(s.path)
}

// changeMetadata changes a field of metadata.
func (v *variants) changeMetadata(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		object["metadata"] = metadata
	}
	field := oneOf(v.rng, "labels", "annotations", "finalizers", "ownerReferences", "name", "generation", "generateName")
	owner := map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x", "controller": true}
	switch field {
	case "labels", "annotations":
		metadata[field] = oneOf(v.rng, any(map[string]any{"a": "b"}), any(map[string]any{"Bad Key!": "x"}),
			any(map[string]any{"a": "Bad Value!"}), any(map[string]any{strings.Repeat("k", 70): "x"}), any(nil))
	case "finalizers":
		metadata[field] = oneOf(v.rng, any([]any{"example.com/x"}), any([]any{"Bad!"}), any([]any{"x"}), any([]any{}))
	case "ownerReferences":
		metadata[field] = oneOf(v.rng, []any{owner}, []any{owner, owner}, []any{map[string]any{"name": "x"}}, []any{})
	case "name", "generateName":
		metadata[field] = oneOf(v.rng, "", "Bad Name!", "a.b", strings.Repeat("x", 64), strings.Repeat("x", 254), "x-")
	case "generation":
		metadata[field] = oneOf[any](v.rng, int64(-1), int64(5))
	}
	return "set metadata." + field
}

// put sets the value at a path. It makes the objects and lists on the way; half of the time these get the fields that
// their schema requires.
func (v *variants) put(object map[string]any, path []any, value any) {
	schema := v.schema
	complete := v.rng.IntN(2) == 0
	var holder any = object
	set := func(any) {}
	for i, step := range path {
		schema, _ = v.doc.resolve(schema)
		var next any
		switch step := step.(type) {
		case string:
			members, ok := holder.(map[string]any)
			if !ok {
				members = map[string]any{}
				if complete {
					members = v.plausibleObject(schema, 0)
				}
				set(members)
			}
			next = members[step]
			set = func(x any) { members[step] = x }
			if properties, _ := schema["properties"].(tree); properties != nil {
				schema, _ = properties[step].(tree)
			} else {
				schema, _ = schema["additionalProperties"].(tree)
			}
		case int:
			list, _ := holder.([]any)
			for len(list) <= step {
				list = append(list, nil)
			}
			set(list)
			next = list[step]
			set = func(x any) { list[step] = x }
			schema, _ = schema["items"].(tree)
		}
		if i == len(path)-1 {
			set(value)
		}
		holder = next
	}
}

// remove removes the value at a path.
func remove(object map[string]any, path []any) {
	var holder any = object
	for i, step := range path {
		last := i == len(path)-1
		switch step := step.(type) {
		case string:
			members, _ := holder.(map[string]any)
			if last {
				delete(members, step)
			}
			holder = members[step]
		case int:
			list, _ := holder.([]any)
			if step >= len(list) {
				return
			}
			if last {
				list[step] = list[0] // lists keep their length: one element is there twice
			}
			holder = list[step]
		}
	}
}

// plausibleObject returns an object with the fields that a schema requires, and sometimes others.
func (v *variants) plausibleObject(schema tree, depth int) map[string]any {
	out := map[string]any{}
	properties, _ := schema["properties"].(tree)
	required, _ := schema["required"].([]any)
	for _, key := range sorted(properties) {
		property, _ := properties[key].(tree)
		if slices.Contains(required, any(key)) || depth == 0 && v.rng.IntN(4) == 0 {
			out[key] = v.plausible(property, key, depth+1)
		}
	}
	return out
}

// plausible returns a value that is often valid for a field of that name.
func (v *variants) plausible(schema tree, name string, depth int) any {
	schema, ref := v.doc.resolve(schema)
	if values, _ := schema["enum"].([]any); len(values) > 0 {
		return oneOf(v.rng, values...)
	}
	if strings.HasSuffix(ref, "Quantity") {
		return oneOf(v.rng, "1", "1Gi", "500m")
	}
	switch schema["type"] {
	case "string":
		switch schema["format"] {
		case "date-time":
			return "2024-01-01T00:00:00Z"
		case "byte":
			return "AA=="
		}
		if values := usualValues[name]; len(values) > 0 {
			return oneOf(v.rng, values...)
		}
		return oneOf(v.rng, "x", "a-b", "example.com")
	case "integer", "number":
		return int64(oneOf(v.rng, 1, 2, 80))
	case "boolean":
		return v.rng.IntN(2) == 0
	case "array":
		items, _ := schema["items"].(tree)
		return []any{v.plausible(items, name, depth+1)}
	}
	if schema["oneOf"] != nil {
		return int64(1) // an integer or a string
	}
	if depth > 5 {
		return map[string]any{}
	}
	if values, _ := schema["additionalProperties"].(tree); values != nil {
		return map[string]any{oneOf(v.rng, "a", "storage", "cpu", "example.com/x"): v.plausible(values, name, depth+1)}
	}
	return v.plausibleObject(schema, depth)
}

// usualValues are valid values of strings that have no enumeration in the schema, by the name of the field.
var usualValues = map[string][]string{
	"accessModes":   {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"},
	"operator":      {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal"},
	"values":        {"1", "x"},
	"mode":          {"Never", "Once", "None"},
	"apiGroup":      {"", "apps", "example.com"},
	"apiVersion":    {"v1", "apps/v1"},
	"kind":          {"Pod", "User", "Group", "ServiceAccount"},
	"status":        {"True", "False", "Unknown"},
	"path":          {"/x", "x/y", "../x"},
	"mountPath":     {"/x"},
	"topologyKey":   {"zone"},
	"ip":            {"10.1.2.3", "::1"},
	"cidr":          {"10.0.0.0/8"},
	"podCIDRs":      {"10.0.0.0/24", "2001:db8::/64"},
	"protocol":      {"TCP", "UDP"},
	"restartPolicy": {"Always"},
	"dataSource":    {"x"},
	"expression":    {"true", "object.metadata.name == 'x'", "1", "device.driver == 'x'"},
	"finalizers":    {"example.com/x", "kubernetes"},
	"verbs":         {"get", "*"},
	"secretRef":     {"x"},
}

// value returns a value for a field: a plausible one, a boundary value, an empty one or one of a wrong type.
func (v *variants) value(schema tree, name string) any {
	schema, ref := v.doc.resolve(schema)
	switch v.rng.IntN(20) {
	case 0:
		return nil
	case 1:
		return oneOf[any](v.rng, "x", int64(1), true, []any{}, map[string]any{}, 1.5)
	case 2, 3, 4, 5:
		return v.plausible(schema, name, 0)
	}
	if strings.HasSuffix(ref, "Quantity") {
		return oneOf[any](v.rng, "0", "-1", "1", "1500m", "0.1", "5Gi", "1n", "1E", int64(3), "x", "")
	}
	switch schema["type"] {
	case "string":
		return v.text(schema)
	case "integer", "number":
		return oneOf[any](v.rng, int64(0), int64(-1), int64(1), int64(2), int64(80), int64(100), int64(101), int64(1000),
			int64(65535), int64(65536), int64(86401), int64(1)<<31-1, int64(1)<<31, int64(1)<<40)
	case "boolean":
		return v.rng.IntN(2) == 0
	case "array":
		items, _ := schema["items"].(tree)
		one := v.plausible(items, name, 0)
		return oneOf(v.rng, []any{}, []any{nil}, []any{one}, []any{one, clone(one)}, []any{v.value(items, name)},
			[]any{one, v.plausible(items, name, 0), v.plausible(items, name, 0)})
	}
	if schema["oneOf"] != nil {
		return oneOf[any](v.rng, int64(0), int64(-1), int64(101), "0%", "50%", "101%", "http", "Bad_Value!", "")
	}
	if values, _ := schema["additionalProperties"].(tree); values != nil {
		key := oneOf(v.rng, "a", "", "Bad Key!", "storage", "cpu", "memory", "example.com/x", strings.Repeat("k", 70), "pods")
		return map[string]any{key: v.value(values, name)}
	}
	return oneOf(v.rng, map[string]any{}, v.plausibleObject(schema, 0))
}

// text returns a string: one of the enumeration, or one at a boundary of what names, labels, paths and so on may be.
func (v *variants) text(schema tree) any {
	values, _ := schema["enum"].([]any)
	if len(values) > 0 && v.rng.IntN(2) == 0 {
		return oneOf(v.rng, values...)
	}
	if schema["format"] == "date-time" {
		return oneOf(v.rng, "", "2020-01-01T00:00:00Z", "2050-01-01T00:00:00.5Z", "yesterday", "2020-01-01T00:00:00.123456Z")
	}
	if schema["format"] == "byte" {
		return oneOf(v.rng, "", "AA==", "not base64!", "eHh4")
	}
	return oneOf(v.rng, "", "x", " ", "Bad_Value!", "UPPER", "a/b", "a.b.c", "example.com", "example.com/x", "/a", "/",
		"..", "../a", "a/../b", "/a:b", "a:b", "-x", "x-", "x_y", "10.1.2.3", "010.1.2.3", "::1", "2001:DB8::1",
		"10.0.0.0/8", "10.0.0.1/8", "127.0.0.1", "http", "https://example.com/x", "1", "0", "*", "*.example.com",
		"kubernetes", "default",
		strings.Repeat("x", 63), strings.Repeat("x", 64), strings.Repeat("x", 253), strings.Repeat("x", 254),
		strings.Repeat("x", 300), "x\ny", "é", "True", "Always", "None", "Retain")
}

func lastName(path []any) string {
	for _, step := range slices.Backward(path) {
		if name, ok := step.(string); ok {
			return name
		}
	}
	return ""
}

func pathText(path []any) string {
	var b strings.Builder
	for i, step := range path {
		switch step := step.(type) {
		case string:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step)
		case int:
			b.WriteString("[]")
		}
	}
	return b.String()
}

// changed returns the members of an object that differ from those of another, as a merge patch would set them.
func changed(from, to map[string]any) map[string]any {
	out := map[string]any{}
	names := slices.Collect(maps.Keys(from))
	for _, name := range slices.Compact(slices.Sorted(slices.Values(append(names, sorted(to)...)))) {
		a, b := from[name], to[name]
		inner, ok := b.(map[string]any)
		before, both := a.(map[string]any)
		switch {
		case ok && both:
			if c := changed(before, inner); len(c) > 0 {
				out[name] = c
			}
		case string(marshal(a)) != string(marshal(b)):
			out[name] = clone(b)
		}
	}
	return out
}

// operations returns a JSON patch that makes from to; sometimes with another operation that need not be valid.
func (v *variants) operations(from, to map[string]any) []any {
	operations := []any{}
	var walk func(path string, a, b map[string]any)
	walk = func(path string, a, b map[string]any) {
		names := slices.Collect(maps.Keys(a))
		for _, name := range slices.Compact(slices.Sorted(slices.Values(append(names, sorted(b)...)))) {
			here := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
			before, was := a[name]
			after, is := b[name]
			from, _ := before.(map[string]any)
			to, _ := after.(map[string]any)
			switch {
			case from != nil && to != nil:
				walk(here, from, to)
			case was && !is:
				operations = append(operations, map[string]any{"op": "remove", "path": here})
			case string(marshal(before)) != string(marshal(after)):
				operations = append(operations, map[string]any{
					"op": oneOf(v.rng, "add", "add", "replace"), "path": here, "value": after,
				})
			}
		}
	}
	walk("", from, to)
	if v.rng.IntN(10) == 0 {
		operations = append(operations, oneOf[any](v.rng,
			map[string]any{"op": "test", "path": "/metadata/name", "value": "x"},
			map[string]any{"op": "test", "path": "/kind", "value": from["kind"]},
			map[string]any{"op": "copy", "from": "/metadata/name", "path": "/metadata/labels"},
			map[string]any{"op": "move", "from": "/metadata/labels", "path": "/metadata/annotations"},
			map[string]any{"op": "remove", "path": "/none/none"},
			map[string]any{"op": "add", "path": "/spec", "value": nil},
			map[string]any{"op": "none", "path": "/spec"},
		))
	}
	return operations
}
