// Package mergeschema contains the merge schemas of the built-in kinds. A merge schema defines which lists are sets or
// maps, which keys the maps have, and which values are atomic. Server-side apply merges objects by it, and it
// determines the fields in managedFields. The merge schemas of custom resources are made by
// internal/object/structuralschema/mergetypes.
//
// The schemas are generated from the OpenAPI definitions of the kinds (internal/gen/openapi) and embedded in the
// program in the format of package binaryformat. The types of a kind are decoded at the first request for the kind, and
// stay in memory. Kinds share the types that they have in common.
package mergeschema

import (
	_ "embed"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	smdtyped "sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/keelson-dev/keelson/internal/object/mergeschema/binaryformat"
)

//go:generate ../../gen/openapi/generate.sh

//go:embed builtin.bin
var builtin string

var types = sync.OnceValue(func() *binaryformat.Types {
	t, err := binaryformat.Open(builtin)
	if err != nil {
		panic(err) // the data is part of the program
	}
	return t
})

// Builtin returns the type of a built-in kind, or false if there is no such kind. Its schema contains the types that
// the kind refers to, directly or indirectly. It is the same for all calls and must not be changed.
func Builtin(group, version, kind string) (smdtyped.ParseableType, bool) {
	return types().Parseable(binaryformat.Kind{Group: group, Version: version, Kind: kind})
}

// A Converter converts objects of the built-in kinds to typed values and back.
type Converter struct{}

var _ managedfields.TypeConverter = Converter{}

// Unknown returns a converter that knows no kind: it returns an error for every object. managedfields takes that error
// to mean that the version of the object is not served any more.
func Unknown() managedfields.TypeConverter { return unknown() }

var unknown = sync.OnceValue(func() managedfields.TypeConverter {
	c, err := managedfields.NewTypeConverter(nil, false)
	if err != nil {
		panic(err)
	}
	return c
})

// ObjectToTyped returns the object as a typed value of the kind named in its apiVersion and kind. The value refers to
// the object. It fails if the kind is not built-in, or if the object is invalid by its schema (a duplicate key in a
// list, an unknown field) and the options do not allow that.
func (Converter) ObjectToTyped(
	object runtime.Object, options ...smdtyped.ValidationOptions,
) (*smdtyped.TypedValue, error) {
	gvk := object.GetObjectKind().GroupVersionKind()
	t, ok := Builtin(gvk.Group, gvk.Version, gvk.Kind)
	if !ok {
		return unknown().ObjectToTyped(object, options...)
	}
	return ToTyped(t, object, options...)
}

// TypedToObject returns the value as an unstructured object.
func (Converter) TypedToObject(value *smdtyped.TypedValue) (runtime.Object, error) {
	return ToObject(value)
}

// ToTyped returns the object as a typed value of type t. The value refers to the object.
func ToTyped(
	t smdtyped.ParseableType, object runtime.Object, options ...smdtyped.ValidationOptions,
) (*smdtyped.TypedValue, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return t.FromUnstructured(u.UnstructuredContent(), options...)
	}
	return t.FromStructured(object, options...)
}

// ToObject returns a typed value as an unstructured object. It fails if the value is not a map.
func ToObject(value *smdtyped.TypedValue) (runtime.Object, error) {
	content := value.AsValue().Unstructured()
	if m, ok := content.(map[string]any); ok {
		return &unstructured.Unstructured{Object: m}, nil
	}
	return nil, fmt.Errorf("failed to convert value to unstructured for type %T", content)
}
