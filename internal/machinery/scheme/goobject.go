package scheme

import (
	"bytes"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/structjson"
)

// ToTree returns the tree of an object of a Go type, as apimachinery's converter makes it. Via JSON it takes a third of
// the time: the converter examines the type of each value again.
func ToTree(obj runtime.Object) (map[string]any, error) {
	// The JSON encoder replaces invalid UTF-8, the converter does not.
	if doc, err := Marshal(obj); err == nil && !bytes.Contains(doc, []byte(`\ufffd`)) {
		if tree, ok := ParseTree(doc); ok {
			return tree, nil
		}
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
}

// FromTree converts a tree to an empty object of a Go type, as apimachinery's converter does. With strict set, unknown
// members are a strict decoding error. Like ToTree it uses JSON where that has the same result.
func FromTree(tree map[string]any, into runtime.Object, strict bool) error {
	if DecodeTree(tree, into) {
		return nil
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(tree, into, strict)
}

// DecodeTree is FromTree for a tree without unknown members and without other errors. It returns false, and leaves into
// as it is, for any other tree.
func DecodeTree(tree map[string]any, into runtime.Object) bool {
	doc, err := appendTree(nil, tree)
	if err != nil || bytes.Contains(doc, []byte(`\ufffd`)) {
		return false
	}
	value := reflect.ValueOf(into).Elem()
	read := reflect.New(value.Type())
	if !structjson.Decode(doc, read.Interface()) {
		return false
	}
	value.Set(read.Elem())
	return true
}
