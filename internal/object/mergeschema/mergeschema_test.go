package mergeschema

import (
	"encoding/json"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/keelson-dev/keelson/internal/api/discovery/openapi"
	"github.com/keelson-dev/keelson/internal/object/mergeschema/binaryformat"
)

// models returns the definitions of the served documents, and the type name of each kind.
func models(t testing.TB) (map[string]*spec.Schema, map[binaryformat.Kind]string) {
	t.Helper()
	kinds := map[binaryformat.Kind]string{}
	all := map[string]*spec.Schema{}
	archive, err := openapi.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range archive.V3() {
		text, err := archive.ReadV3(info.Path)
		if err != nil {
			t.Fatal(err)
		}
		var document struct {
			Components struct {
				Schemas map[string]*spec.Schema `json:"schemas"`
			} `json:"components"`
		}
		if err := json.Unmarshal(text, &document); err != nil {
			t.Fatal(err)
		}
		for name, s := range document.Components.Schemas {
			all[name] = s
			var of []binaryformat.Kind
			if err := s.Extensions.GetObject("x-kubernetes-group-version-kind", &of); err != nil {
				t.Fatal(err)
			}
			for _, k := range of {
				kinds[k] = name
			}
		}
	}
	return all, kinds
}

// TestSchemasEqualDefinitions checks that the schema of each kind has the same types as the schema of all definitions.
func TestSchemasEqualDefinitions(t *testing.T) {
	definitions, kinds := models(t)
	whole, err := schemaconv.ToSchemaFromOpenAPI(definitions, false)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]schema.Atom{}
	for _, d := range whole.Types {
		want[d.Name] = d.Atom
	}
	for k, name := range kinds {
		p, ok := Builtin(k.Group, k.Version, k.Kind)
		if !ok || *p.TypeRef.NamedType != name {
			t.Errorf("%v: found %v, want type %s", k, ok, name)
		}
	}
	if got := len(types().Kinds()); got != len(kinds) || got < 150 {
		t.Errorf("%d kinds, want %d", got, len(kinds))
	}
	seen := map[string]bool{}
	for _, k := range types().Kinds() {
		p, ok := Builtin(k.Group, k.Version, k.Kind)
		if !ok || !p.IsValid() {
			t.Errorf("%v: not valid", k)
			continue
		}
		for _, d := range p.Schema.Types {
			if seen[d.Name] {
				continue
			}
			seen[d.Name] = true
			got, wanted := plain(d.Atom), plain(want[d.Name])
			if !reflect.DeepEqual(got, wanted) {
				t.Errorf("%s: got %+v, want %+v", d.Name, got, wanted)
			}
			eachRef(d.Atom, func(r schema.TypeRef) {
				if r.NamedType != nil {
					if _, ok := p.Schema.FindNamedType(*r.NamedType); !ok {
						t.Errorf("%v: %s refers to %s, which is not in the schema", k, d.Name, *r.NamedType)
					}
				}
			})
		}
	}
	t.Logf("%d kinds, %d types reached of %d", len(types().Kinds()), len(seen), len(want))
}

// plain converts an atom to values that reflect.DeepEqual compares by content.
func plain(a schema.Atom) any {
	out := map[string]any{}
	if a.Scalar != nil {
		out["scalar"] = *a.Scalar
	}
	if a.List != nil {
		out["list"] = []any{a.List.ElementRelationship, slices.Clone(a.List.Keys), plainRef(a.List.ElementType)}
	}
	if a.Map != nil {
		fields := map[string]any{}
		for _, f := range a.Map.Fields {
			fields[f.Name] = []any{plainRef(f.Type), f.Default}
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

func eachRef(a schema.Atom, visit func(schema.TypeRef)) {
	each := func(r schema.TypeRef) {
		visit(r)
		eachRef(r.Inlined, visit)
	}
	if a.List != nil {
		each(a.List.ElementType)
	}
	if a.Map != nil {
		each(a.Map.ElementType)
		for _, f := range a.Map.Fields {
			each(f.Type)
		}
	}
}

func examplePod() *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"x": "y"}, Finalizers: []string{"f"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "i",
			Ports: []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 80, Protocol: "UDP"}},
			Env:   []corev1.EnvVar{{Name: "E", Value: "v"}},
		}}},
	}
}

// TestConverterAgainstAllDefinitions checks that the converter behaves like one over the schema of all definitions.
func TestConverterAgainstAllDefinitions(t *testing.T) {
	definitions, _ := models(t)
	reference, err := managedfields.NewTypeConverter(definitions, false)
	if err != nil {
		t.Fatal(err)
	}
	pod := examplePod()
	deployment := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: corev1.PodTemplateSpec{Spec: pod.Spec},
		},
	}
	widget := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{"containers": []any{map[string]any{"name": "x"}}}},
	}
	twice := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{"containers": []any{map[string]any{"name": "x"}, map[string]any{"name": "x"}}}},
	}
	extra := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{"nonsense": "x"}},
	}
	gone := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v9", "kind": "Pod"}}
	for _, object := range []k8sruntime.Object{pod, deployment, widget, twice, extra, gone} {
		got, gotErr := Converter{}.ObjectToTyped(object)
		want, wantErr := reference.ObjectToTyped(object)
		if (gotErr == nil) != (wantErr == nil) || gotErr != nil && gotErr.Error() != wantErr.Error() ||
			reflect.TypeOf(gotErr) != reflect.TypeOf(wantErr) {
			t.Errorf("errors differ: %v (%T), want %v (%T)", gotErr, gotErr, wantErr, wantErr)
			continue
		}
		if gotErr != nil {
			continue
		}
		gotSet, err := got.ToFieldSet()
		if err != nil {
			t.Fatal(err)
		}
		wantSet, err := want.ToFieldSet()
		if err != nil {
			t.Fatal(err)
		}
		if !gotSet.Equals(wantSet) {
			t.Errorf("field sets differ:\n%v\nwant\n%v", gotSet, wantSet)
		}
		gotObject, err := Converter{}.TypedToObject(got)
		if err != nil {
			t.Fatal(err)
		}
		wantObject, err := reference.TypedToObject(want)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(gotObject, wantObject) {
			t.Errorf("objects differ: %v, want %v", gotObject, wantObject)
		}
	}
}

func TestBuiltinSharesSchemas(t *testing.T) {
	a, _ := Builtin("", "v1", "Pod")
	b, _ := Builtin("", "v1", "Pod")
	if a.Schema != b.Schema {
		t.Error("two schemas for one kind; values of them could not be merged")
	}
	list, _ := Builtin("", "v1", "PodList")
	x, _ := a.Schema.FindNamedType("io.k8s.api.core.v1.PodSpec")
	y, _ := list.Schema.FindNamedType("io.k8s.api.core.v1.PodSpec")
	if x.Map != y.Map {
		t.Error("kinds do not share a type")
	}
	if _, ok := Builtin("", "v2", "Pod"); ok {
		t.Error("a kind that does not exist was found")
	}
	_, err := Converter{}.ObjectToTyped(
		&unstructured.Unstructured{Object: map[string]any{"kind": "None", "apiVersion": "a/v1"}},
	)
	if err == nil || !strings.Contains(err.Error(), "no corresponding type") {
		t.Errorf("err = %v", err)
	}
}

// BenchmarkFirstPod measures the time and memory of the first use of Pods.
func BenchmarkFirstPod(b *testing.B) {
	b.ReportAllocs()
	pod := examplePod()
	for b.Loop() {
		fresh, err := binaryformat.Open(builtin)
		if err != nil {
			b.Fatal(err)
		}
		p, _ := fresh.Parseable(binaryformat.Kind{Version: "v1", Kind: "Pod"})
		if _, err := p.FromStructured(pod); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAllKinds measures the memory of the schemas of all kinds.
func BenchmarkAllKinds(b *testing.B) {
	var keep *binaryformat.Types
	before, after := runtime.MemStats{}, runtime.MemStats{}
	runtime.GC()
	runtime.ReadMemStats(&before)
	for b.Loop() {
		keep, _ = binaryformat.Open(builtin)
		for _, k := range keep.Kinds() {
			p, _ := keep.Parseable(k)
			p.Schema.FindNamedType("")
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc)-float64(before.HeapAlloc), "heap-B")
	runtime.KeepAlive(keep)
}
