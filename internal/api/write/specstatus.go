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

// copyPart is a shallow copy: afterwards both objects share the lists and maps of the part, so they must not be
// changed in place.
func copyPart(to, from any) {
	reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from).Elem())
}

// equalParts compares by meaning: empty and missing lists are the same. A client that sends "ports": [] for a
// missing list does not change the generation.
func equalParts(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }
