package scheme

import (
	"errors"
	"fmt"
	"sync"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// UnmarshalTree decodes JSON with whole numbers as int64 and others as float64, and
// member names as they are written.
func UnmarshalTree(doc []byte, into any) error {
	if empty, ok := into.(*map[string]any); ok && *empty == nil {
		if tree, ok := ParseTree(doc); ok {
			*empty = tree
			return nil
		}
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(doc, into)
}

// UnmarshalTreeStrict is UnmarshalTree and returns an error for each duplicate member,
// of which the last counts.
func UnmarshalTreeStrict(doc []byte, into *map[string]any) (strict []error, err error) {
	if tree, ok := ParseTree(doc); ok {
		*into = tree
		return nil, nil
	}
	return kjson.UnmarshalStrict(doc, into)
}

// MarshalTree encodes an *unstructured.Unstructured without a newline at its end,
// for which there is room. The result has no more capacity than that: it may be kept.
func MarshalTree(obj Object) ([]byte, error) {
	tree, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%T is no tree", obj)
	}
	buffer := treeBuffers.Get().(*[]byte)
	defer treeBuffers.Put(buffer)
	b, err := appendTree((*buffer)[:0], tree.Object)
	if err != nil {
		return nil, err
	}
	*buffer = b
	return append(make([]byte, 0, len(b)+1), b...), nil
}

// treeBuffers are what trees are encoded in before their size is known.
var treeBuffers = sync.Pool{New: func() any { return new([]byte) }}

// unmarshalTree reads a document into a tree; strict errors are duplicate members.
func (d Decoder) unmarshalTree(doc []byte, tree *unstructured.Unstructured, strict bool) ([]error, error) {
	tree.Object = nil
	if strict {
		return UnmarshalTreeStrict(doc, &tree.Object)
	}
	return nil, UnmarshalTree(doc, &tree.Object)
}

// checkTree wants the body of a custom resource to say what kind it is of. Another
// kind is not refused here: validation says so, and CheckVersion that of a version. Who
// does not decode strictly takes the kind for that of the URL until it finds none.
func (d Decoder) checkTree(gvk schema.GroupVersionKind, doc, body []byte, strict bool) error {
	if gvk.Kind != "" {
		return nil
	}
	missing := fmt.Errorf("Object 'Kind' is missing in '%s'", doc) //nolint:staticcheck // kube-apiserver's words
	if !strict {
		return d.cannotHandle(withDefaults(gvk, d.GVK), missing)
	}
	return d.unrecognized(body, missing)
}

// CheckVersion holds the version that the body of a custom resource says it is of
// against that which the URL stands for. It comes after all that is wrong with the
// body by itself.
func (d Decoder) CheckVersion(gv schema.GroupVersion) error {
	if gv == d.GVK.GroupVersion() {
		return nil
	}
	return kerrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", gv, d.GVK.GroupVersion()))
}

// ErrNoProtobuf says that custom resources have no protobuf encoding.
var ErrNoProtobuf = errors.New("custom resources have no protobuf encoding")

// patchedTree reads a patched document. Without a kind there is no object; another
// version is as wrong as in a body.
func (d Decoder) patchedTree(gvk schema.GroupVersionKind, doc []byte, strict bool) ([]error, error) {
	if gvk.Kind == "" {
		return nil, fmt.Errorf("Object 'Kind' is missing in '%s'", doc) //nolint:staticcheck // kube-apiserver's words
	}
	return d.unmarshalTree(doc, d.New().(*unstructured.Unstructured), strict)
}
