package binaryformat

import (
	"os"
	"reflect"
	"sync"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

func ptr[T any](v T) *T { return &v }

// example returns a schema with every feature, a type that refers to itself, and a type that no kind refers to.
func example() *schema.Schema {
	return &schema.Schema{Types: []schema.TypeDef{
		{Name: "root", Atom: schema.Atom{Map: &schema.Map{
			Fields: []schema.StructField{
				{Name: "again", Type: schema.TypeRef{NamedType: ptr("root")}},
				{Name: "map", Type: schema.TypeRef{NamedType: ptr("strings"), ElementRelationship: ptr(schema.Atomic)}},
				{
					Name: "number", Type: schema.TypeRef{Inlined: schema.Atom{Scalar: ptr(schema.Numeric)}, Nullable: true},
					Default: float64(7),
				},
				{Name: "set", Type: schema.TypeRef{Inlined: schema.Atom{List: &schema.List{
					ElementRelationship: schema.Associative, ElementType: schema.TypeRef{NamedType: ptr("any")}, Keys: []string{"a", "b"}}}}},
				{Name: "struct", Type: schema.TypeRef{NamedType: ptr("strings")}, Default: map[string]any{"a": "b"}},
			},
			ElementRelationship: schema.Separable,
		}}},
		{
			Name: "strings",
			Atom: schema.Atom{Map: &schema.Map{ElementType: schema.TypeRef{Inlined: schema.Atom{Scalar: ptr(schema.String)}}}},
		},
		{Name: "any", Atom: schema.Atom{
			Scalar: ptr(schema.Untyped),
			List:   &schema.List{ElementRelationship: schema.Atomic, ElementType: schema.TypeRef{NamedType: ptr("any")}},
			Map:    &schema.Map{ElementRelationship: schema.Atomic, ElementType: schema.TypeRef{NamedType: ptr("any")}},
		}},
		{Name: "unreached", Atom: schema.Atom{Scalar: ptr(schema.Boolean)}},
	}}
}

func TestRoundTrip(t *testing.T) {
	s := example()
	kind, other := Kind{"g", "v1", "Root"}, Kind{"", "v1", "Bool"}
	data, err := Encode(s, map[Kind]string{kind: "root", other: "unreached"})
	if err != nil {
		t.Fatal(err)
	}
	types, err := Open(string(data))
	if err != nil {
		t.Fatal(err)
	}
	if got := types.Kinds(); !reflect.DeepEqual(got, []Kind{other, kind}) {
		t.Errorf("kinds %v", got)
	}
	p, ok := types.Parseable(kind)
	if !ok || *p.TypeRef.NamedType != "root" || len(p.Schema.Types) != 3 {
		t.Fatalf("%v %+v", ok, p)
	}
	for i, want := range []schema.TypeDef{s.Types[2], s.Types[0], s.Types[1]} {
		if !reflect.DeepEqual(p.Schema.Types[i], want) {
			t.Errorf("got %+v, want %+v", p.Schema.Types[i], want)
		}
	}
	if p, ok := types.Parseable(other); !ok || len(p.Schema.Types) != 1 {
		t.Errorf("%v %+v", ok, p)
	}
	if _, ok := types.Parseable(Kind{"g", "v2", "Root"}); ok {
		t.Error("a kind that does not exist was found")
	}
}

func TestEncodeErrors(t *testing.T) {
	for name, s := range map[string]*schema.Schema{
		"scalar": {Types: []schema.TypeDef{{Name: "a", Atom: schema.Atom{Scalar: ptr(schema.Scalar("complex"))}}}},
		"relationship": {
			Types: []schema.TypeDef{{Name: "a", Atom: schema.Atom{Map: &schema.Map{ElementRelationship: "odd"}}}},
		},
		"reference": {
			Types: []schema.TypeDef{{Name: "a", Atom: schema.Atom{Map: &schema.Map{ElementType: schema.TypeRef{NamedType: ptr("b")}}}}},
		},
		"union": {
			Types: []schema.TypeDef{{Name: "a", Atom: schema.Atom{Map: &schema.Map{Unions: []schema.Union{{}}}}}},
		},
	} {
		if _, err := Encode(s, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Encode(&schema.Schema{}, map[Kind]string{{}: "a"}); err == nil {
		t.Error("a kind without a type: no error")
	}
}

func TestOpenDamaged(t *testing.T) {
	data, err := Encode(example(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, damaged := range []string{"", magic, "x" + string(data[1:]), string(data[:len(magic)+20])} {
		if _, err := Open(damaged); err == nil {
			t.Errorf("opened %q", damaged)
		}
	}
}

func TestConcurrently(t *testing.T) {
	data, err := os.ReadFile("../builtin.bin")
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 100<<10 {
		t.Errorf("the schemas have %d bytes", len(data))
	}
	types, err := Open(string(data))
	if err != nil {
		t.Fatal(err)
	}
	kinds := types.Kinds()
	got := make([][]typed.ParseableType, 4)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			for _, k := range kinds {
				p, _ := types.Parseable(k)
				p.IsValid()
				got[i] = append(got[i], p)
			}
		})
	}
	wg.Wait()
	for i := range got {
		for j := range kinds {
			if got[i][j].Schema != got[0][j].Schema {
				t.Fatalf("%v has two schemas", kinds[j])
			}
		}
	}
}
