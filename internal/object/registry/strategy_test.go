package registry_test

import (
	"context"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// TestUntypedKeepsEveryField sets every field of the typed groups of a Kind, and expects each in what Untyped returns;
// fields that are not set stay so.
func TestUntypedKeepsEveryField(t *testing.T) {
	type object = *corev1.ConfigMap
	var (
		strategy registry.Strategy[object]
		deletion registry.Deletion[object]
		table    registry.Table[object]
	)
	groups := []struct {
		typed   reflect.Value
		untyped func() any
	}{
		{reflect.ValueOf(&strategy).Elem(), func() any { return strategy.Untyped() }},
		{reflect.ValueOf(&deletion).Elem(), func() any { return deletion.Untyped() }},
		{reflect.ValueOf(&table).Elem(), func() any { return table.Untyped() }},
	}
	for _, g := range groups {
		if out := g.untyped(); !reflect.ValueOf(out).IsZero() {
			t.Errorf("of nothing: %+v", out)
		}
		for i := range g.typed.NumField() {
			setAny(t, g.typed.Field(i))
		}
		out := reflect.ValueOf(g.untyped())
		for i := range out.NumField() {
			if out.Field(i).IsZero() {
				t.Errorf("%s: Untyped drops %s", g.typed.Type(), out.Type().Field(i).Name)
			}
		}
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
	default:
		t.Fatalf("a field of type %s", field.Type())
	}
}

// TestUntypedPassesNoOldObject: a create has no old object, of which Warn is told as a nil of the kind's own type.
func TestUntypedPassesNoOldObject(t *testing.T) {
	strategy := registry.Strategy[*corev1.ConfigMap]{
		Warn: func(_ context.Context, _, old *corev1.ConfigMap) []string {
			if old != nil {
				t.Errorf("old is %v", old)
			}
			return []string{"called"}
		},
	}.Untyped()
	if got := strategy.Warn(t.Context(), &corev1.ConfigMap{}, nil); len(got) != 1 {
		t.Errorf("%q", got)
	}
}
