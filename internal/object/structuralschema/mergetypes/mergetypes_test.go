package mergetypes

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/keelson-dev/keelson/internal/object/structuralschema"
	"github.com/keelson-dev/keelson/internal/object/structuralschema/internal/sample"
)

// The results are compared with kube-openapi's conversion of the published OpenAPI schema.

func openAPI(t testing.TB, text string) *spec.Schema {
	t.Helper()
	var s spec.Schema
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	addResource(&s)
	addEmbedded(&s)
	return &s
}

func addResource(s *spec.Schema) {
	s.SetProperty("apiVersion", *spec.StringProperty())
	s.SetProperty("kind", *spec.StringProperty())
	s.SetProperty("metadata", *spec.RefSchema("#/components/schemas/" + objectMetaType))
}

func addEmbedded(s *spec.Schema) {
	for name, p := range s.Properties {
		addEmbedded(&p)
		s.Properties[name] = p
	}
	if s.Items != nil {
		addEmbedded(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		addEmbedded(s.AdditionalProperties.Schema)
	}
	if is, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource"); is {
		addResource(s)
	}
}

func twinAtom(t testing.TB, text string) schema.Atom {
	t.Helper()
	s, err := schemaconv.ToSchemaFromOpenAPI(map[string]*spec.Schema{rootType: openAPI(t, text)}, false)
	if err != nil {
		t.Fatal(err)
	}
	return find(t, s, rootType)
}

func find(t testing.TB, s *schema.Schema, name string) schema.Atom {
	t.Helper()
	for _, d := range s.Types {
		if d.Name == name {
			return d.Atom
		}
	}
	t.Fatalf("no type %s", name)
	return schema.Atom{}
}

// plain converts an atom to values that reflect.DeepEqual compares by content.
func plain(a schema.Atom) any {
	out := map[string]any{}
	if a.Scalar != nil {
		out["scalar"] = *a.Scalar
	}
	if a.List != nil {
		out["list"] = []any{a.List.ElementRelationship, append([]string{}, a.List.Keys...), plainRef(a.List.ElementType)}
	}
	if a.Map != nil {
		fields := map[string]any{}
		for _, f := range a.Map.Fields {
			text, err := json.Marshal(f.Default)
			if err != nil {
				panic(err)
			}
			var fallback any // numbers of OpenAPI schemas are decoded as float64
			if err := json.Unmarshal(text, &fallback); err != nil {
				panic(err)
			}
			fields[f.Name] = []any{plainRef(f.Type), fallback}
		}
		out["map"] = []any{a.Map.ElementRelationship, plainRef(a.Map.ElementType), fields, len(a.Map.Unions)}
	}
	return out
}

func plainRef(r schema.TypeRef) any {
	out := map[string]any{"inlined": plain(r.Inlined), "nullable": r.Nullable}
	if r.NamedType != nil {
		out["named"] = *r.NamedType
	}
	if r.ElementRelationship != nil {
		out["relationship"] = *r.ElementRelationship
	}
	return out
}

func compile(t testing.TB, text string) *structuralschema.Schema {
	t.Helper()
	var props apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal([]byte(text), &props); err != nil {
		t.Fatal(err)
	}
	s, err := structuralschema.New(&props)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func compare(t testing.TB, text string) {
	t.Helper()
	got, want := plain(find(t, &New(compile(t, text)).schema, rootType)), plain(twinAtom(t, text))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s\ngot  %v\nwant %v", text, got, want)
	}
}

func recordedSchemas(t testing.TB) (out []string) {
	t.Helper()
	f, err := os.Open("../testdata/accepted.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var schemas []struct{ Schema string }
	if err := json.NewDecoder(z).Decode(&schemas); err != nil {
		t.Fatal(err)
	}
	for _, s := range schemas {
		out = append(out, s.Schema)
	}
	return out
}

func TestTypesOfRecordedSchemas(t *testing.T) {
	schemas := recordedSchemas(t)
	if len(schemas) < 200 {
		t.Fatalf("%d schemas", len(schemas))
	}
	for _, text := range schemas {
		compare(t, text)
	}
}

func FuzzTypes(f *testing.F) {
	for seed := range uint64(500) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		text, err := json.Marshal(withoutDefaults(sample.New(seed).Schema()))
		if err != nil {
			t.Fatal(err)
		}
		compare(t, string(text))
	})
}

// withoutDefaults removes the defaults of objects and arrays, because these are pruned before.
func withoutDefaults(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, sub := range v {
			switch sub.(type) {
			case map[string]any, []any:
				if name == "default" {
					delete(v, name)
				}
			}
			withoutDefaults(sub)
		}
	case []any:
		for _, sub := range v {
			withoutDefaults(sub)
		}
	}
	return v
}

const widgets = `{"type": "object", "properties": {
	"spec": {"type": "object", "properties": {
		"ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"], "items": {"type": "object",
			"required": ["port"], "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": {"type": "string"}}}},
		"hosts": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
		"args": {"type": "array", "items": {"type": "string"}},
		"selector": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
		"size": {"x-kubernetes-int-or-string": true},
		"free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		"template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}}}`

const widget = `{"apiVersion": "example.com/v1", "kind": "Widget",
	"metadata": {"name": "a", "finalizers": ["f"], "labels": {"x": "y"}, "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}]},
	"spec": {"ports": [{"port": 80}, {"port": 80, "protocol": "UDP", "name": "dns"}], "hosts": ["a", "b"], "args": ["x"], "selector": {"a": "b"}, "size": "5%",
		"free": {"a": {"b": [1]}}, "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"finalizers": ["g"]}, "spec": {"c": 1}}}}`

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func converter(t testing.TB) *Converter {
	t.Helper()
	return (&Cache{}).NewConverter(
		runtimeschema.GroupKind{Group: "example.com", Kind: "Widget"},
		map[string]*structuralschema.Schema{"v1": compile(t, widgets), "v2": nil},
	)
}

func TestConverter(t *testing.T) {
	c := converter(t)
	value, err := c.ObjectToTyped(object(t, widget))
	if err != nil {
		t.Fatal(err)
	}
	set, err := value.ToFieldSet()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for path := range set.Leaves().All() {
		got = append(got, path.String())
	}
	slices.Sort(got)
	want := strings.Fields(`.apiVersion .kind .metadata.finalizers[="f"] .metadata.labels.x .metadata.name .metadata.ownerReferences[uid="u"]
		.spec.args .spec.free.a.b .spec.hosts[="a"] .spec.hosts[="b"]
		.spec.ports[port=80,protocol="TCP"].port .spec.ports[port=80,protocol="UDP"].name .spec.ports[port=80,protocol="UDP"].port .spec.ports[port=80,protocol="UDP"].protocol
		.spec.selector .spec.size .spec.template.apiVersion .spec.template.kind .spec.template.metadata.finalizers[="g"] .spec.template.spec.c`)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	back, err := c.TypedToObject(value)
	if err != nil || !reflect.DeepEqual(back, object(t, widget)) {
		t.Errorf("back: %v, %v", back, err)
	}
}

func TestConverterRefuses(t *testing.T) {
	c := converter(t)
	reference, err := managedfields.NewTypeConverter(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`{"apiVersion": "example.com/v3", "kind": "Widget"}`, `{"apiVersion": "other.com/v1", "kind": "Widget"}`,
	} {
		_, err := c.ObjectToTyped(object(t, text))
		_, want := reference.ObjectToTyped(object(t, text))
		if reflect.TypeOf(err) != reflect.TypeOf(want) || err == nil || err.Error() != want.Error() {
			t.Errorf("got %v (%T), want %v (%T)", err, err, want, want)
		}
	}
	for _, text := range []string{
		`{"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"unknown": 1}}`,
		`{"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"hosts": ["a", "a"]}}`,
	} {
		if _, err := c.ObjectToTyped(object(t, text)); err == nil {
			t.Errorf("%s is no error", text)
		}
	}
	if _, err := c.ObjectToTyped(
		object(t, `{"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"hosts": ["a", "a"]}}`), typed.AllowDuplicates,
	); err != nil {
		t.Error(err)
	}
	if _, err := c.ObjectToTyped(
		object(t, `{"apiVersion": "example.com/v2", "kind": "Widget", "any": {"thing": [1]}}`),
	); err != nil {
		t.Error("without a schema: ", err)
	}
}

func TestTypesAreShared(t *testing.T) {
	var types Cache
	schemas := structuralschema.NewCache()
	var props apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal([]byte(widgets), &props); err != nil {
		t.Fatal(err)
	}
	first, err := schemas.New(&props)
	if err != nil {
		t.Fatal(err)
	}
	second, err := schemas.New(&props)
	if err != nil {
		t.Fatal(err)
	}
	a, b := types.Type(first), types.Type(second)
	if a != b {
		t.Error("equal schemas have two types")
	}
	runtime.KeepAlive(a)
}

func BenchmarkNew(b *testing.B) {
	s := compile(b, widgets)
	b.ReportAllocs()
	for b.Loop() {
		New(s)
	}
}
