// Package typed gives the schemas by which objects of the built-in kinds are
// merged: which lists are sets or maps, by which keys, and what is atomic. They
// decide the fields of managedFields.
//
// The schemas are derived from the OpenAPI definitions of the kinds when the
// project is developed (internal/gen/openapi). The types of a kind are decoded
// when the kind is first asked for, and kept; kinds share the types that they have
// in common.
package typed

import (
	_ "embed"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	smdtyped "sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/keelson-dev/keelson/typed/compact"
)

//go:generate ../internal/gen/openapi/generate.sh

//go:embed builtin.bin
var builtin string

var types = sync.OnceValue(func() *compact.Types {
	t, err := compact.Open(builtin)
	if err != nil {
		panic(err) // the data is part of the program
	}
	return t
})

// For returns the type of a built-in kind. Its schema holds the types that the
// kind reaches and is the same for all calls. It must not be changed.
func For(group, version, kind string) (smdtyped.ParseableType, bool) {
	return types().Parseable(compact.Kind{Group: group, Version: version, Kind: kind})
}

// A Converter makes typed values of objects of the built-in kinds and objects of
// typed values.
type Converter struct{}

var _ managedfields.TypeConverter = Converter{}

// unknown knows no kind. The error it gives for one is recognized by the
// packages of managedfields as that of a version that is gone.
var unknown = sync.OnceValue(func() managedfields.TypeConverter {
	c, err := managedfields.NewTypeConverter(nil, false)
	if err != nil {
		panic(err)
	}
	return c
})

// ObjectToTyped returns the object as a typed value of the kind that it says it
// is. The value refers to the object. An object that is not valid by its schema
// (a duplicate key in a list, an unknown field) is an error unless the options allow it.
func (Converter) ObjectToTyped(
	object runtime.Object, options ...smdtyped.ValidationOptions,
) (*smdtyped.TypedValue, error) {
	gvk := object.GetObjectKind().GroupVersionKind()
	t, ok := For(gvk.Group, gvk.Version, gvk.Kind)
	if !ok {
		return unknown().ObjectToTyped(object, options...)
	}
	if u, ok := object.(*unstructured.Unstructured); ok {
		return t.FromUnstructured(u.UnstructuredContent(), options...)
	}
	return t.FromStructured(object, options...)
}

// TypedToObject returns the value as an unstructured object.
func (Converter) TypedToObject(value *smdtyped.TypedValue) (runtime.Object, error) {
	content := value.AsValue().Unstructured()
	if m, ok := content.(map[string]any); ok {
		return &unstructured.Unstructured{Object: m}, nil
	}
	return nil, fmt.Errorf("failed to convert value to unstructured for type %T", content)
}
