package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	cborserial "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"sigs.k8s.io/yaml"
)

// place is the place of a value in a tree: the member key of an object, or the element at of a list.
type place struct {
	object map[string]any
	key    string
	list   []any
	at     int
}

func (p place) value() any {
	if p.object != nil {
		return p.object[p.key]
	}
	return p.list[p.at]
}

func (p place) set(v any) {
	if p.object != nil {
		p.object[p.key] = v
	} else {
		p.list[p.at] = v
	}
}

// places returns the places of all values below a tree, in an order that depends on the tree alone.
func places(tree any) []place {
	var out []place
	switch v := tree.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out = append(out, place{object: v, key: k})
			out = append(out, places(v[k])...)
		}
	case []any:
		for i := range v {
			out = append(out, place{list: v, at: i})
			out = append(out, places(v[i])...)
		}
	}
	return out
}

// oddValue returns a value that few fields accept.
func oddValue(rng *rand.Rand) any {
	deep := any("x")
	for range 60 {
		deep = []any{deep}
	}
	return oneOf[any](rng, nil, true, false, int64(0), int64(-1), int64(1), int64(80), int64(70000), int64(1)<<40,
		int64(1)<<62, 1.5, -0.1, 1e300,
		"", "x", " ", "X", "a/b", "..", ".", "%", "a b", "\x00", "\u2028", "é", "x\n", strings.Repeat("x", 64),
		strings.Repeat("x", 254), strings.Repeat("x", 5000),
		"1Ki", "-1", "1e3", "1.5", "99999999999999999999", "0.1n", "1e99", "+1", ".5", "1KiB", "2020-01-01T00:00:00Z",
		"2020-01-01T00:00:00.123456Z", "2020-13-01T00:00:00Z", "10.0.0.1", "10.0.0.300", "::1", "10.0.0.0/8",
		"50%", "-5%", "101%", "http", "TCP", "Always", "true", "null", "default", "kube-system", "system:masters",
		"x.example.com", "example.com/x", "app=x", "3h", "-3h", "AA==", "not base64!",
		[]any{}, map[string]any{}, []any{nil}, []any{map[string]any{}}, []any{"x", "x"}, []any{int64(1)}, []any{[]any{}},
		map[string]any{"": ""}, map[string]any{"x": nil}, map[string]any{"x": "y"},
		map[string]any{"name": "x"}, []any{map[string]any{"name": "x"}, map[string]any{"name": "x"}},
		map[string]any{"matchLabels": map[string]any{}}, deep)
}

// mutateTree changes a tree in one place and describes the change.
func mutateTree(rng *rand.Rand, tree map[string]any) string {
	all := places(tree)
	if len(all) == 0 {
		tree["x"] = oddValue(rng)
		return "a member"
	}
	p := oneOf(rng, all...)
	name := p.key
	switch rng.IntN(10) {
	case 0, 1, 2, 3, 4:
		p.set(oddValue(rng))
		return "value of " + name
	case 5:
		if p.object != nil {
			delete(p.object, p.key)
		} else {
			p.set(nil)
		}
		return "without " + name
	case 6:
		other := oneOf(rng, all...)
		p.set(clone(other.value()))
		return "copy " + other.key + " to " + name
	case 7:
		if p.object != nil {
			v := p.object[p.key]
			if rng.IntN(2) == 0 {
				delete(p.object, p.key)
			}
			p.object[oneOf(
				rng, strings.ToUpper(name), strings.ToUpper(name[:min(1, len(name))])+name[min(1, len(name)):], name+"x", "", "x",
				name+" ", "é",
			)] = v
		}
		return "rename " + name
	case 8:
		if l, ok := p.value().([]any); ok && len(l) > 0 {
			p.set(append(slices.Clone(l), clone(l[0])))
		} else {
			p.set([]any{p.value()})
		}
		return "list of " + name
	}
	metadata, ok := tree["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		tree["metadata"] = metadata
	}
	field := oneOf(rng, "name", "namespace", "generateName", "uid", "resourceVersion", "creationTimestamp",
		"deletionTimestamp", "deletionGracePeriodSeconds", "finalizers",
		"ownerReferences", "managedFields", "selfLink", "labels", "annotations", "generation")
	metadata[field] = oneOf(rng, oddValue(rng), any([]any{"example.com/x"}),
		any([]any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}}),
		any([]any{map[string]any{"manager": "x", "operation": "Update", "apiVersion": "v1", "time": "2020-01-01T00:00:00Z",
			"fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:x": map[string]any{}}}}))
	return "metadata." + field
}

// mutateBytes changes random bytes, and describes the change.
func mutateBytes(rng *rand.Rand, b []byte) ([]byte, string) {
	b = slices.Clone(b)
	if len(b) == 0 {
		return []byte{byte(rng.IntN(256))}, "a byte"
	}
	at := rng.IntN(len(b))
	end := min(len(b), at+1+rng.IntN(16))
	switch rng.IntN(9) {
	case 0:
		b[at] ^= 1 << rng.IntN(8)
		return b, "a bit"
	case 1:
		b[at] = oneOf[byte](rng, 0, 0x7f, 0x80, 0xff, 0x0b, 0x0c, byte(rng.IntN(256)))
		return b, "a byte"
	case 2:
		return slices.Delete(b, at, end), "bytes deleted"
	case 3:
		return slices.Insert(b, at, b[at:end]...), "bytes twice"
	case 4:
		return b[:at], "the end is missing"
	case 5:
		random := make([]byte, 1+rng.IntN(8))
		for i := range random {
			random[i] = byte(rng.IntN(256))
		}
		return slices.Insert(b, at, random...), "bytes inserted"
	case 6:
		// The longest varint, a group, a deep chain of lengths, an indefinite length.
		return slices.Insert(b, at, oneOf(rng, bytes.Repeat([]byte{0xff}, 10), []byte{0x0b, 0x0c},
			[]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x07}, []byte{0x9f, 0xff}, []byte{0xbf, 0xff}, []byte{0x5f, 0x41, 0x41, 0xff},
			bytes.Repeat([]byte{0x81}, 100), []byte{0xfb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0}, []byte{0xc2, 0x41, 0x01},
			[]byte{0xf7})...), "a telling byte sequence"
	case 7:
		return append(b, b[at:end]...), "bytes at the end"
	}
	other := rng.IntN(len(b))
	b[at], b[other] = b[other], b[at]
	return b, "bytes swapped"
}

// mutateText changes JSON or YAML text, and describes the change.
func mutateText(rng *rand.Rand, b []byte, yamlText bool) ([]byte, string) {
	at := rng.IntN(len(b) + 1)
	insert := func(s string) ([]byte, string) {
		return slices.Insert(slices.Clone(b), at, []byte(s)...), fmt.Sprintf("%q inserted", s[:min(len(s), 20)])
	}
	if yamlText && rng.IntN(2) == 0 {
		switch rng.IntN(3) {
		case 0:
			return insert(oneOf(rng, "&a ", "*a", "!!binary ", "!!int ", "!!str ", "!!float ", "!!set ", "!x ", "<<: *a\n",
				"\n---\n", "\n...\n", "\t", "? ", "|\n", ">\n", "~", "0x10", "0o17", "1_000", ".inf", ".nan", "yes", "2020-01-01",
				"- ", ": ", "# ", "%YAML 1.1\n", "'", "[", "{", "\r", "\u0085", "\ufeff", "!!timestamp ", "&a [*a]", "@", "`"))
		case 1:
			lines := bytes.SplitAfter(b, []byte("\n"))
			i := rng.IntN(len(lines))
			return bytes.Join(slices.Insert(slices.Clone(lines), i, lines[rng.IntN(len(lines))]), nil), "a line twice"
		default:
			lines := bytes.SplitAfter(b, []byte("\n"))
			i := rng.IntN(len(lines))
			lines = slices.Clone(lines)
			lines[i] = append([]byte(strings.Repeat(" ", 1+rng.IntN(4))), lines[i]...)
			return bytes.Join(lines, nil), "a line indented"
		}
	}
	switch rng.IntN(6) {
	case 0:
		return insert(oneOf(rng, ",", "{", "}", "[", "]", `"`, ":", `\u0000`, `\ud800`, `\u`, "1e999", "-", "00", "//x",
			"/**/", "\xff", "\x00", `"kind":"x",`, `"metadata":null,`, `"spec":{},`, `"x":1,`, "null", "\ufeff", "NaN", "Infinity", `'`))
	case 1:
		return duplicateMember(rng, b), "a member twice"
	case 2:
		return oneOf(rng, nil, []byte("null"), []byte("[]"), []byte("{}"), []byte(`""`), []byte("0"), []byte(" "),
				[]byte("{"), append(slices.Clone(b), b...), append([]byte("["), append(slices.Clone(b), ']')...),
				append([]byte("\ufeff"), b...), []byte(strings.Repeat("[", 5000)), []byte(strings.Repeat(`{"a":`, 5000))),
			"another document"
	}
	return mutateBytes(rng, b)
}

// duplicateMember repeats a member of an object, with the same or another value.
func duplicateMember(rng *rand.Rand, b []byte) []byte {
	var starts []int
	for i, c := range b {
		if c == '{' && i+1 < len(b) && b[i+1] == '"' {
			starts = append(starts, i+1)
		}
	}
	if len(starts) == 0 {
		return b
	}
	at := oneOf(rng, starts...)
	end := bytes.IndexByte(b[at:], ':')
	if end < 0 {
		return b
	}
	member := append(slices.Clone(b[at:at+end+1]), []byte(oneOf(rng, "null", `"x"`, "{}", "[]", "1")+",")...)
	return slices.Insert(slices.Clone(b), at, member...)
}

// jsonPatch returns a random JSON patch for a tree.
func jsonPatch(rng *rand.Rand, tree map[string]any) []any {
	pointers := append(pointersOf("", tree), "", "/", "/-", "/a~2", "/metadata/labels/x~1y", "/metadata/labels",
		"/metadata/annotations/x", "/spec/x/y", "x", "/metadata/name", "/kind", "/metadata/managedFields", "/metadata/managedFields/0")
	var patch []any
	for range 1 + rng.IntN(3) {
		op := map[string]any{"op": oneOf(rng, "add", "add", "add", "replace", "replace", "remove", "move", "copy", "test",
			"x", ""), "path": oneOf(rng, pointers...) + oneOf(rng, "", "", "", "/-", "/0", "/-1", "/00", "/x")}
		if rng.IntN(5) > 0 {
			op["value"] = oddValue(rng)
		}
		if op["op"] == "move" || op["op"] == "copy" || rng.IntN(20) == 0 {
			op["from"] = oneOf(rng, pointers...)
		}
		if rng.IntN(30) == 0 {
			mutateTree(rng, op)
		}
		patch = append(patch, op)
	}
	return patch
}

func pointersOf(prefix string, tree any) []string {
	var out []string
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	switch v := tree.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			p := prefix + "/" + escape.Replace(k)
			out = append(append(out, p), pointersOf(p, v[k])...)
		}
	case []any:
		for i := range v {
			p := fmt.Sprintf("%s/%d", prefix, i)
			out = append(append(out, p), pointersOf(p, v[i])...)
		}
	}
	return out
}

// addDirectives adds directives of strategic merge patches to a tree.
func addDirectives(rng *rand.Rand, tree map[string]any) {
	all := places(tree)
	for range 1 + rng.IntN(2) {
		object := tree
		if len(all) > 0 {
			if o, ok := oneOf(rng, all...).value().(map[string]any); ok {
				object = o
			}
		}
		key := oneOf(rng, "$patch", "$patch", "$retainKeys", "$setElementOrder/containers", "$setElementOrder/x",
			"$deleteFromPrimitiveList/finalizers", "$deleteFromPrimitiveList/x", "$x")
		object[key] = oneOf(rng, any("delete"), any("replace"), any("merge"), any("x"), any([]any{"x"}),
			any([]any{map[string]any{"name": "x"}}), any(nil), any(map[string]any{}), oddValue(rng))
	}
}

// part removes some members of a tree.
func part(rng *rand.Rand, tree map[string]any) map[string]any {
	out := map[string]any{}
	for _, k := range slices.Sorted(maps.Keys(tree)) {
		if rng.IntN(3) == 0 {
			continue
		}
		if m, ok := tree[k].(map[string]any); ok {
			out[k] = part(rng, m)
			continue
		}
		out[k] = clone(tree[k])
	}
	return out
}

func toYAML(tree any) []byte {
	b, err := yaml.Marshal(tree)
	if err != nil {
		panic(err) // trees come from JSON
	}
	return b
}

func toCBOR(tree any) []byte {
	b, err := cborserial.Marshal(tree)
	if err != nil {
		panic(err) // trees come from JSON
	}
	return b
}
