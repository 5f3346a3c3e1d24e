// Package patch applies the bodies of PATCH requests: JSON patch (RFC 6902), JSON merge patch (RFC 7386) and strategic
// merge patch. It also decodes the bodies of server-side apply. It does not use HTTP or storage: results only depend on
// arguments.
//
// Every error is a *errors.StatusError of k8s.io/apimachinery/pkg/api/errors, with the code, reason and message for the
// client.
package patch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	mergepatch "gopkg.in/evanphx/json-patch.v4"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/jsonpatch"
)

// MaxOperations limits the operations of a JSON patch. kube-apiserver has the same limit. A body of 3 MiB has
// room for far more, and each operation may copy or move a part of the document.
const MaxOperations = 10000

// Validation is the fieldValidation of a request: how unknown and duplicate fields are handled. Ignore drops such
// fields silently, Warn drops them with a warning, and Strict refuses the request (KEP-2885).
type Validation string

const (
	Ignore Validation = metav1.FieldValidationIgnore
	Warn   Validation = metav1.FieldValidationWarn
	Strict Validation = metav1.FieldValidationStrict
)

// checks reports whether the server looks for unknown and duplicate fields. Strict decoding takes longer, so it
// is done only if somebody gets its results.
func (v Validation) checks() bool { return v == Warn || v == Strict }

// jsonPatchOp is an operation in the form in which it is checked before it is applied. With it, a misspelled
// member such as "paht" is found, which the library ignores.
type jsonPatchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// JSON applies a JSON patch to doc and returns the new document. strict has the errors about unknown and duplicate
// fields of the patch itself, unless v is Ignore; pass it to Decoded. The arguments are not changed; the result may
// share memory with them.
func JSON(doc, body []byte, v Validation) (patched []byte, strict []error, err error) {
	if v.checks() {
		var ops []jsonPatchOp
		strict, err = kjson.UnmarshalStrict(body, &ops)
		if err != nil {
			// The error contains the name of a Go type. Clients get the name of this type in kube-apiserver.
			text := strings.ReplaceAll(err.Error(), "patch.jsonPatchOp", "handlers.jsonPatchOp")
			return nil, nil, kerrors.NewBadRequest("error decoding patch: " + text)
		}
		for i, e := range strict {
			strict[i] = fmt.Errorf("json patch %w", e)
		}
	}
	operations, err := jsonpatch.Decode(body)
	if err != nil {
		return nil, nil, kerrors.NewBadRequest(err.Error())
	}
	if operations.Len() > MaxOperations {
		return nil, nil, kerrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"The allowed maximum operations in a JSON patch is %d, got %d", MaxOperations, operations.Len()))
	}
	patched, err = operations.Apply(doc)
	var tooDeep *jsonpatch.DepthError
	var tooLong *jsonpatch.MovesError
	if errors.As(err, &tooDeep) || errors.As(err, &tooLong) {
		return nil, nil, kerrors.NewRequestEntityTooLargeError(err.Error())
	}
	if err != nil {
		return nil, nil, unprocessable(err)
	}
	return patched, strict, nil
}

// Merge applies a JSON merge patch to doc. See JSON for strict and ownership.
func Merge(doc, body []byte, v Validation) (patched []byte, strict []error, err error) {
	if v.checks() {
		// The tree is decoded only for its strict errors; the library works on the bytes.
		var tree map[string]any
		if strict, err = scheme.UnmarshalTreeStrict(body, &tree); err != nil {
			return nil, nil, kerrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
		}
	}
	if err := scheme.CheckDepth(body); err != nil {
		return nil, nil, kerrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	// The library parses everything below each level of the patch again, so the depth times the size is about
	// what it reads.
	if scheme.Depth(body)*(len(doc)+len(body)) > jsonpatch.MaxPathBytes {
		return mergeDeep(doc, body, strict)
	}
	patched, err = mergepatch.MergePatch(doc, body)
	switch {
	case errors.Is(err, mergepatch.ErrBadJSONPatch):
		return nil, nil, kerrors.NewBadRequest(err.Error())
	case err != nil:
		return nil, nil, plain(err)
	}
	return patched, strict, nil
}

// mergeDeep is Merge for a deep and large patch. The library would parse the text below each level again. Unlike
// Merge, mergeDeep changes the order of the members that the patch does not change.
func mergeDeep(doc, body []byte, strict []error) ([]byte, []error, error) {
	changes, ok := numbered(body)
	document, isObject := numbered(doc)
	if !ok || !isObject {
		return nil, nil, kerrors.NewBadRequest(mergepatch.ErrBadJSONPatch.Error())
	}
	MergeTree(document, changes)
	patched, err := json.Marshal(document)
	if err != nil {
		return nil, nil, plain(err)
	}
	return patched, strict, nil
}

// numbered decodes a JSON object, in which numbers stay as they are written.
func numbered(doc []byte) (map[string]any, bool) {
	var tree map[string]any
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	// A literal null decodes to no map; it is not an object.
	if d.Decode(&tree) != nil || tree == nil {
		return nil, false
	}
	_, err := d.Token()
	return tree, errors.Is(err, io.EOF)
}

// Decoded returns the warnings or the error after a patched document was decoded into its type. err is the decoder's
// error, which may be nil or a strict decoding error of package runtime; strict are the errors that JSON or Merge found
// in the patch.
func Decoded(patched []byte, strict []error, err error, v Validation) (warnings []string, _ error) {
	return strictResult(func() string { return string(patched) }, strict, err, v)
}

// strictResult returns the warnings, or the error, of the decoding of a patched object.
func strictResult(shown func() string, strict []error, err error, v Validation) ([]string, error) {
	if err != nil {
		found, isStrict := runtime.AsStrictDecodingError(err)
		if !isStrict {
			// What was found so far is incomplete: the decoder gave up.
			return nil, invalid(shown(), err.Error())
		}
		strict = append(strict[:len(strict):len(strict)], found.Errors()...)
	}
	if len(strict) == 0 {
		return nil, nil
	}
	if v != Warn {
		return nil, invalid(shown(), runtime.NewStrictDecodingError(strict).Error())
	}
	return Warnings(strict), nil
}

// Warnings returns the texts of strict decoding errors as warnings: each line of a YAML error is one.
func Warnings(strict []error) []string {
	const yamlErrors = "yaml: unmarshal errors:\n"
	var out []string
	for _, e := range strict {
		text := e.Error()
		lines, isYAML := strings.CutPrefix(strings.TrimPrefix(text, "error converting YAML to JSON: "), yamlErrors)
		if !isYAML {
			out = append(out, text)
			continue
		}
		for line := range strings.SplitSeq(lines, "\n") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// invalid returns the error for a patch whose result cannot be decoded.
func invalid(shown, detail string) error {
	return kerrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{
		field.Invalid(field.NewPath("patch"), shown, detail),
	})
}

// unprocessable returns the error for a patch that cannot be applied to the document, without its cause.
func unprocessable(err error) error {
	return kerrors.NewGenericServerResponse(
		http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false,
	)
}

// plain returns an error with the code 500 and the text of err, without a reason. kube-apiserver answers so to
// errors for which its code has chosen no status.
func plain(err error) error {
	return &kerrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error(),
	}}
}
