package write

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
)

// The parts of an object that the functions Spec and Status of its strategy return are pointers.

func clearPart(p any) {
	v := reflect.ValueOf(p).Elem()
	v.SetZero()
}

func copyPart(to, from any) {
	reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from).Elem())
}

// equalParts compares by meaning: empty and missing lists are the same.
func equalParts(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }
