package celrules

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// tenRules returns a schema with ten rules on two nodes.
func tenRules(b testing.TB) *apiextensionsv1.JSONSchemaProps {
	short := int64(20)
	text := apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: &short}
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"min": {Type: "integer"}, "max": {Type: "integer"}, "name": text,
		"list": {Type: "array", MaxItems: &short, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &text}},
	}}
	for i := range 8 {
		spec.XValidations = append(spec.XValidations, apiextensionsv1.ValidationRule{
			Rule: fmt.Sprintf("self.min + %d <= self.max && self.name.startsWith('n')", i),
		})
	}
	spec.XValidations = append(spec.XValidations,
		apiextensionsv1.ValidationRule{Rule: "self.list.all(x, x.size() > 0)", MessageExpression: "'list of ' + self.name"})
	return &apiextensionsv1.JSONSchemaProps{
		Type:         "object",
		Properties:   map[string]apiextensionsv1.JSONSchemaProps{"spec": spec},
		XValidations: []apiextensionsv1.ValidationRule{{Rule: "self.metadata.name == self.spec.name"}},
	}
}

func tenRulesObject() map[string]any {
	return map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": "n1"},
		"spec":     map[string]any{"min": int64(1), "max": int64(90), "name": "n1", "list": []any{"a", "b", "c"}},
	}
}

func BenchmarkCheckTenRules(b *testing.B) {
	s := schemaOf(b, tenRules(b))
	for b.Loop() {
		if errs := Check(s, CheckOptions{Path: field.NewPath("schema"), Root: true}); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}

func BenchmarkCompileTenRules(b *testing.B) {
	s := schemaOf(b, tenRules(b))
	object := tenRulesObject()
	var kept []*Validator
	before := heap()
	for b.Loop() {
		v := Compile(s, true)
		if errs, _ := v.Validate(context.Background(), nil, object, nil, Budget); len(errs) > 0 {
			b.Fatal(errs)
		}
		kept = append(kept, v)
	}
	b.ReportMetric(float64(heap()-before)/float64(len(kept)), "kept-B/op")
	runtime.KeepAlive(kept)
}

func BenchmarkValidateTenRules(b *testing.B) {
	v := Compile(schemaOf(b, tenRules(b)), true)
	object := tenRulesObject()
	b.ReportAllocs()
	for b.Loop() {
		if errs, _ := v.Validate(context.Background(), nil, object, nil, Budget); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}

func BenchmarkValidateUpdateTenRules(b *testing.B) {
	v := Compile(schemaOf(b, tenRules(b)), true)
	object, old := tenRulesObject(), tenRulesObject()
	b.ReportAllocs()
	for b.Loop() {
		if errs, _ := v.Validate(context.Background(), nil, object, old, Budget); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
