package patch

import (
	"errors"
	"fmt"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
)

// Strategic applies a strategic merge patch to original, a typed object in the
// version of the request, and decodes the result into an empty object of the same
// type. original is not changed; into may share parts with it, and is half-filled
// where an error is returned. The caller sets defaults on into afterwards. The
// warnings are of unknown and duplicate fields, where v is Warn.
func Strategic(original, into runtime.Object, body []byte, v Validation) (warnings []string, err error) {
	patch, strict, err := decodeTree(body, v)
	if err != nil {
		return nil, err
	}
	return strategicTree(original, into, patch, strict, v)
}

func strategicTree(original, into runtime.Object, patch map[string]any, strict []error, v Validation) ([]string, error) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(original)
	if err != nil {
		return nil, plain(err)
	}
	merged, err := strategicpatch.StrategicMergeMapPatch(tree, patch, into)
	if err != nil {
		return nil, strategicError(err)
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(merged, into, v.checks())
	return settle(func() string { return fmt.Sprintf("%+v", patch) }, strict, err, v)
}

func decodeTree(body []byte, v Validation) (tree map[string]any, strict []error, err error) {
	tree = map[string]any{}
	if v.checks() {
		strict, err = kjson.UnmarshalStrict(body, &tree)
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(body, &tree)
	}
	if err != nil {
		return nil, nil, kerrors.NewBadRequest(err.Error())
	}
	return tree, strict, nil
}

// strategicError answers a patch that the merge refused.
func strategicError(err error) error {
	for _, malformed := range []error{
		mergepatch.ErrBadJSONDoc,
		mergepatch.ErrBadPatchFormatForPrimitiveList,
		mergepatch.ErrBadPatchFormatForRetainKeys,
		mergepatch.ErrBadPatchFormatForSetElementOrderList,
		mergepatch.ErrUnsupportedStrategicMergePatchFormat,
	} {
		if errors.Is(err, malformed) {
			return kerrors.NewBadRequest(err.Error())
		}
	}
	if errors.Is(err, mergepatch.ErrNoListOfLists) || errors.Is(err, mergepatch.ErrPatchContentNotMatchRetainKeys) {
		return unprocessable(err)
	}
	return plain(err)
}
