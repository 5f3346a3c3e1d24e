package structuralschema

import (
	"runtime"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/object/structuralschema/internal/sample"
)

func TestNotStructural(t *testing.T) {
	for _, c := range []struct{ schema, want string }{
		{`{}`, "schema is not structural: type must not be empty"},
		{`{"type": "thing"}`, `type "thing" is unknown`},
		{`{"$ref": "#/x"}`, "$ref is not supported"},
		{`{"type": "object", "properties": {"a": {}}}`, "schema.properties[a] is not structural: type must not be empty"},
		{`{"type": "array", "items": [{"type": "string"}]}`, "items must be a schema"},
		{`{"type": "object", "patternProperties": {"a": {"type": "string"}}}`, "patternProperties is not supported"},
		{`{"type": "object", "x-kubernetes-preserve-unknown-fields": false}`, "must be true or undefined"},
		{`{"type": "object", "anyOf": [{"type": "object"}]}`,
			"schema.anyOf[0] is not structural: type must be integer or string"},
		{`{"type": "object", "oneOf": [{"type": "integer"}]}`,
			"schema.oneOf[0] is not structural: type must not stand below a combinator"},
		{`{"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "boolean"}]}`,
			"type must be integer or string"},
		{`{"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": [{"type": "integer"}]}, {"anyOf": [{"type": "string"}]}]}`,
			"schema.allOf[1].anyOf[0] is not structural"},
		{`{"type": "object", "not": {"properties": {"a": {"default": 1}}}}`,
			"schema.not.properties[a] is not structural: default"},
		{`{"type": "object", "oneOf": [{"additionalProperties": {"maximum": 1}}]}`, "additionalProperties must not stand"},
		{`{"type": "string", "pattern": "("}`, "pattern: "},
		{`{"type": "array", "items": {"type": "string", "allOf": [{"x-kubernetes-list-type": "set"}]}}`,
			"schema.items.allOf[0] is not structural"},
		{`{"type": "object", "additionalProperties": {"type": "object", "properties": {"b": {"type": "string", "id": "c"}}}}`,
			"schema.additionalProperties.properties[b] is not structural: id"},
		{`{"type": "object", "allOf": [{"nullable": true}]}`, "nullable must not"},
		{`{"type": "object", "allOf": [{"x-kubernetes-embedded-resource": true}]}`,
			"x-kubernetes-embedded-resource must not"},
		{`{"type": "object", "allOf": [{"x-kubernetes-preserve-unknown-fields": true}]}`,
			"x-kubernetes-preserve-unknown-fields must not"},
		{`{"type": "object", "properties": {"a": {"type": "string", "anyOf": [{"x-kubernetes-int-or-string": true}]}}}`,
			"x-kubernetes-int-or-string must not"},
	} {
		if _, err := New(propsOf(t, c.schema)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.schema, err, c.want)
		}
	}
	if _, err := New(nil); err == nil {
		t.Error("no schema is no error")
	}
}

func TestEqualSchemasAreOne(t *testing.T) {
	cache := NewCache()
	make := func(text string) *Schema {
		s, err := cache.New(propsOf(t, text))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a := make(
		`{"type": "object", "properties": {"a": {"type": "string", "pattern": "^a"}, "b": {"type": "string",` +
			` "pattern": "^a"}, "c": {"type": "integer"}}}`,
	)
	if a.Properties["a"] != a.Properties["b"] {
		t.Error("equal properties are two")
	}
	b := make(
		`{"properties": {"c": {"type": "integer"}, "b": {"pattern": "^a", "description": "other words", "type": "string"},` +
			` "a": {"type": "string", "pattern": "^a"}}, "type": "object"}`,
	)
	if a != b {
		t.Error("equal schemas are two")
	}
	c := make(
		`{"type": "object", "properties": {"a": {"type": "string", "pattern": "^a"}, "b": {"type": "string",` +
			` "pattern": "^a", "maxLength": 1}, "c": {"type": "integer"}}}`,
	)
	if a == c || c.Properties["a"] != a.Properties["a"] || c.Properties["c"] != a.Properties["c"] ||
		c.Properties["b"].Values.Regexp != a.Properties["b"].Values.Regexp {
		t.Error("schemas do not share what is equal, or all")
	}
	runtime.KeepAlive([]*Schema{a, b, c})
	for range 1000 { // cleanups run some time after a collection
		runtime.GC()
		if nodes, patterns := cache.Size(); nodes == 0 && patterns == 0 {
			return
		}
		runtime.Gosched()
	}
	t.Error("nothing uses the schemas, but they are kept")
}

// FuzzDigest: different schemas must be different nodes, even if they are similar.
func FuzzDigest(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		source := sample.New(seed)
		cache := NewCache()
		var kept []*Schema
		texts := map[*Schema]string{}
		for range 20 {
			schema := text(t, source.Schema())
			s, err := cache.New(propsOf(t, schema))
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, s)
			if other, found := texts[s]; found && other != schema {
				t.Errorf("seed %d: taken to be equal:\n%s\n%s", seed, schema, other)
			}
			texts[s] = schema
		}
		runtime.KeepAlive(kept)
	})
}

func TestDefaultsArePruned(t *testing.T) {
	const schema = `{"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}, "default": {"b": "x", "c": "y"}},
		"e": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}},
			"default": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "labels": 5, "no": 1}, "other": 1}},
		"n": {"type": "string", "default": null}}}`
	object := map[string]any{}
	schemaOf(t, schema).SetDefaults(object)
	if got := text(t, object); got != `{"a":{"b":"x"},"e":{"apiVersion":"v1","kind":"K","metadata":{"name":"n"}}}` {
		t.Errorf("got %s", got)
	}
	written, err := Written(propsOf(t, schema))
	if err != nil {
		t.Fatal(err)
	}
	object = map[string]any{}
	written.SetDefaults(object)
	if got := text(t, object); got != `{"a":{"b":"x","c":"y"},"e":{"apiVersion":"v1","kind":"K","metadata":{"labels":5,`+
		`"name":"n","no":1},"other":1}}` {
		t.Errorf("as written: %s", got)
	}
}

func TestDefaultsAreCopied(t *testing.T) {
	s := schemaOf(
		t,
		`{"type": "object", "properties": {"a": {"type": "object", "default": {"b": {}},`+
			` "properties": {"b": {"type": "object", "properties": {"c": {"type": "integer", "default": 3}}}}}}}`,
	)
	first, second := map[string]any{}, map[string]any{}
	s.SetDefaults(first)
	first["a"].(map[string]any)["b"].(map[string]any)["c"] = "changed"
	s.SetDefaults(second)
	if got := text(t, second); got != `{"a":{"b":{"c":3}}}` {
		t.Errorf("got %s", got)
	}
}

func TestErrorsAreInOrder(t *testing.T) {
	s := schemaOf(
		t,
		`{"type": "object", "additionalProperties": {"type": "integer", "maximum": 3, "oneOf": [{"minimum": 1},`+
			` {"minimum": 2}]}}`,
	)
	object := tree(t, `{"d": 5, "a": 5, "c": "x", "b": 9, "e": 1, "f": 7}`)
	want := s.Validate(nil, object)
	if len(want) < 8 {
		t.Fatalf("%v", want)
	}
	for range 20 {
		if got := s.Validate(nil, object); got.ToAggregate().Error() != want.ToAggregate().Error() {
			t.Fatalf("got %v, then %v", want, got)
		}
	}
}

func TestLenientDecoding(t *testing.T) {
	s := schemaOf(
		t,
		`{"type": "object", "properties": {"a": {"type": "integer"}, "e": {"type": "object",`+
			` "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}`,
	)
	object := tree(t, `{"apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "labels": 5, "finalizers": ["f"]}, "a": null, "b": 1,
		"e": {"apiVersion": 5, "kind": "K", "metadata": "x", "more": null}}`)
	if _, err := s.Decode(object, DecodeOptions{Lenient: true}); err != nil {
		t.Fatal(err)
	}
	if got := text(t, object); got != `{"apiVersion":"v1","e":{"kind":"K","metadata":"x","more":null},"kind":"K",`+
		`"metadata":{"finalizers":["f"],"generation":1,"name":"n"}}` {
		t.Errorf("got %s", got)
	}
	if _, err := s.Decode(tree(t, `{"metadata": "x"}`), DecodeOptions{Lenient: true}); err == nil ||
		err.Error() != "invalid metadata: expected object, got string" {
		t.Errorf("err = %v", err)
	}
	object = tree(t, `{"b": {"c": 1}, "a": null}`)
	if _, err := s.Decode(object, DecodeOptions{Preserve: true}); err != nil ||
		text(t, object) != `{"a":null,"b":{"c":1}}` {
		t.Errorf("preserved: %v, %v", object, err)
	}
}

// TestAcceptedSchemas: New must accept every schema that kube-apiserver accepts as structural.
func TestAcceptedSchemas(t *testing.T) {
	var schemas []struct{ Name, Schema string }
	readJSON(t, "testdata/accepted.json.gz", &schemas)
	if len(schemas) < 200 {
		t.Fatalf("%d schemas", len(schemas))
	}
	for _, s := range schemas {
		if _, err := New(propsOf(t, s.Schema)); err != nil {
			t.Errorf("%s: %v\n%s", s.Name, err, s.Schema)
		}
	}
}
