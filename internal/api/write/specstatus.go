package write

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
)

// The functions below work on a part of an object: a pointer to its spec or to its status, which the functions Spec
// and Status of its strategy return.

func clearPart(p any) {
	v := reflect.ValueOf(p).Elem()
	v.SetZero()
}

func copyPart(to, from any) {
	reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from).Elem())
}

// equalParts compares by meaning: empty and missing lists are the same.
func equalParts(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }
