package registry_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// TestUntypedKeepsEveryField sets every field of the typed groups of a Kind, and expects each in what Untyped returns;
// fields that are not set stay so.
func TestUntypedKeepsEveryField(t *testing.T) {
	for _, out := range untyped(t, &corev1.ConfigMap{}, false) {
		if !out.IsZero() {
			t.Errorf("of nothing: %+v", out)
		}
	}
	for _, out := range untyped(t, &corev1.Pod{}, true) {
		for i := range out.NumField() {
			if out.Field(i).IsZero() {
				t.Errorf("%s: Untyped drops %s", out.Type(), out.Type().Field(i).Name)
			}
		}
	}
}

// untyped returns the results of Untyped for the typed groups of a Kind. All fields of the groups are set if set
// is true, otherwise none.
func untyped[T registry.Object](t *testing.T, _ T, set bool) []reflect.Value {
	t.Helper()
	var (
		strategy registry.Strategy[T]
		part     registry.UpdatePart[T]
		deletion registry.Deletion[T]
		table    registry.Table[T]
	)
	if set {
		for _, group := range []any{&strategy, &part, &deletion, &table} {
			v := reflect.ValueOf(group).Elem()
			for i := range v.NumField() {
				setAny(t, v.Field(i))
			}
		}
	}
	return []reflect.Value{
		reflect.ValueOf(strategy.Untyped()), reflect.ValueOf(*part.Untyped()), reflect.ValueOf(deletion.Untyped()),
		reflect.ValueOf(table.Untyped()),
	}
}

// setAny sets a field to some value that is not the zero value.
func setAny(t *testing.T, field reflect.Value) {
	t.Helper()
	switch field.Kind() {
	case reflect.Bool:
		field.SetBool(true)
	case reflect.Slice:
		field.Set(reflect.MakeSlice(field.Type(), 1, 1))
	case reflect.Func:
		field.Set(reflect.MakeFunc(field.Type(), nil))
	case reflect.Struct:
		for i := range field.NumField() {
			setAny(t, field.Field(i))
		}
	default:
		t.Fatalf("a field of type %s", field.Type())
	}
}

// TestUntypedOrder runs the steps for which a strategy can have several functions. All must be called, in the
// order of the declaration. On create there is no old object: the functions get a nil of the kind's own type.
func TestUntypedOrder(t *testing.T) {
	type object = *corev1.ConfigMap
	rule := func(name string) field.ErrorList { return field.ErrorList{field.Required(field.NewPath(name), "")} }
	rules := func(name string) func(context.Context, object, object) field.ErrorList {
		return func(_ context.Context, _, old object) field.ErrorList {
			if (old == nil) != (name == "create in context") {
				t.Errorf("%s: old is %v", name, old)
			}
			return rule(name)
		}
	}
	var prepared []string
	s := registry.Strategy[object]{
		PrepareCreate:        func(object) { prepared = append(prepared, "first") },
		Validate:             func(object) field.ErrorList { return rule("both") },
		ValidateCreate:       func(object) field.ErrorList { return rule("create") },
		ValidateUpdate:       func(_, _ object) field.ErrorList { return rule("update") },
		ValidateStatusUpdate: func(_, _ object) field.ErrorList { return rule("status") },
		Warn: func(_, old object) []string {
			if old != nil {
				t.Errorf("old is %v", old)
			}
			return []string{"called"}
		},
		InContext: registry.InContext[object]{
			PrepareCreate:        func(context.Context, object) { prepared = append(prepared, "second") },
			ValidateCreate:       rules("create in context"),
			ValidateUpdate:       rules("update in context"),
			ValidateStatusUpdate: rules("status in context"),
		},
	}.Untyped()
	obj, old := &corev1.ConfigMap{}, &corev1.ConfigMap{}
	if s.PrepareCreate(t.Context(), obj); strings.Join(prepared, ", ") != "first, second" {
		t.Errorf("prepared by %q", prepared)
	}
	if got := s.Warn(obj, nil); len(got) != 1 {
		t.Errorf("warnings %q", got)
	}
	for _, c := range []struct {
		got  field.ErrorList
		want string
	}{
		{s.ValidateCreate(t.Context(), obj, nil), "both, create, create in context"},
		{s.ValidateUpdate(t.Context(), obj, old), "both, update, update in context"},
		{s.ValidateStatusUpdate(t.Context(), obj, old), "status, status in context"},
	} {
		var got []string
		for _, err := range c.got {
			got = append(got, err.Field)
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("rules %q, want %s", got, c.want)
		}
	}
}

// TestSpecAndStatus reads the spec and the status that strategies find by the type of their objects.
func TestSpecAndStatus(t *testing.T) {
	pods := registry.Strategy[*corev1.Pod]{Generation: true}.Untyped()
	p := &corev1.Pod{}
	if pods.Spec(p) != any(&p.Spec) || pods.Status(p) != any(&p.Status) || pods.Generation(p) != any(&p.Spec) {
		t.Errorf("spec %p, status %p, generation of %p", pods.Spec(p), pods.Status(p), pods.Generation(p))
	}
	if n := testing.AllocsPerRun(100, func() { pods.Spec(p); pods.Status(p) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	limits := registry.Strategy[*corev1.LimitRange]{}.Untyped()
	if limits.Spec == nil || limits.Status != nil || limits.Generation != nil {
		t.Errorf("%+v", limits)
	}
}
