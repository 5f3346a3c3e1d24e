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

// UnmarshalTree decodes JSON to maps, slices and scalars. Integers become int64, other numbers
// float64. Names of members are case-sensitive.
func UnmarshalTree(doc []byte, into any) error {
	if empty, ok := into.(*map[string]any); ok && *empty == nil {
		if tree, ok := ParseTree(doc); ok {
			*empty = tree
			return nil
		}
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(doc, into)
}

// UnmarshalTreeStrict is UnmarshalTree, and returns an error for each duplicate member. The
// last duplicate is used.
func UnmarshalTreeStrict(doc []byte, into *map[string]any) (strict []error, err error) {
	if tree, ok := ParseTree(doc); ok {
		*into = tree
		return nil, nil
	}
	return kjson.UnmarshalStrict(doc, into)
}

// MarshalTree encodes an *unstructured.Unstructured without a newline at the end. The result
// has capacity for exactly one more byte, for a newline.
func MarshalTree(obj Object) ([]byte, error) {
	tree, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%T is not an unstructured object", obj)
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

// treeBuffers has buffers for encoding trees whose size is not known yet.
var treeBuffers = sync.Pool{New: func() any { return new([]byte) }}

// unmarshalTree decodes a document into a tree. The strict errors are duplicate members.
func (d Decoder) unmarshalTree(doc []byte, tree *unstructured.Unstructured, strict bool) ([]error, error) {
	tree.Object = nil
	if strict {
		return UnmarshalTreeStrict(doc, &tree.Object)
	}
	return nil, UnmarshalTree(doc, &tree.Object)
}

// checkTree returns an error if the body of a custom resource has no kind. It does not check
// which kind it is: validation does that, and CheckVersion checks the version. The message of
// the error depends on strict, as in kube-apiserver.
func (d Decoder) checkTree(gvk schema.GroupVersionKind, doc, body []byte, strict bool) error {
	if gvk.Kind != "" {
		return nil
	}
	missing := fmt.Errorf("Object 'Kind' is missing in '%s'", doc) //nolint:staticcheck // kube-apiserver's text
	if !strict {
		return d.cannotHandle(withDefaults(gvk, d.GVK), missing)
	}
	return d.unrecognized(body, missing)
}

// CheckVersion returns an error unless the version in the body of a custom resource is the
// version in the URL. It is called after all other checks of the body.
func (d Decoder) CheckVersion(gv schema.GroupVersion) error {
	if gv == d.GVK.GroupVersion() {
		return nil
	}
	return kerrors.NewBadRequest(
		fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", gv,
			d.GVK.GroupVersion()))
}

// ErrNoProtobuf means that custom resources have no protobuf encoding.
var ErrNoProtobuf = errors.New("custom resources have no protobuf encoding")

// patchedTree decodes a patched document. It returns an error if the document has no kind.
func (d Decoder) patchedTree(gvk schema.GroupVersionKind, doc []byte, strict bool) ([]error, error) {
	if gvk.Kind == "" {
		return nil, fmt.Errorf("Object 'Kind' is missing in '%s'", doc) //nolint:staticcheck // kube-apiserver's text
	}
	return d.unmarshalTree(doc, d.New().(*unstructured.Unstructured), strict)
}
