package patch

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// Strategic applies a strategic merge patch to original, a typed object in the version of the request, and decodes the
// result into into, an empty object of the same type. original is not changed and shares nothing with into. After an
// error into is incomplete. The caller sets apiVersion and kind, which a patch may remove, and defaults on into
// afterwards. If v is Warn, there are warnings about unknown and duplicate fields.
func Strategic(original, into runtime.Object, body []byte, v Validation) (warnings []string, err error) {
	patch, strict, err := decodeTree(body, v)
	if err != nil {
		return nil, err
	}
	part, ok := newPart(original, into, patch)
	if !ok {
		return strategicTree(original, into, patch, strict, v)
	}
	tree, err := part.tree()
	if err != nil {
		return nil, plain(err)
	}
	merged, err := merge(tree, patch, into)
	if err != nil {
		return nil, err
	}
	err = scheme.FromTree(merged, into, v.checks())
	warnings, err = strictResult(func() string { return fmt.Sprintf("%+v", patch) }, strict, err, v)
	if err == nil {
		part.complete(into)
	}
	return warnings, err
}

// MergeParts applies a merge patch as Document does, but converts only the top-level fields that the patch names.
// original, into and what the caller has to do are as for Strategic. MergeParts returns false, and leaves into empty, for
// a patch that it does not understand, or if there may be warnings or errors about the patch or its result: Document has
// to apply it.
func MergeParts(original, into runtime.Object, body []byte) bool {
	changes, ok := scheme.ParseTree(body)
	if !ok || hasFraction(changes) {
		return false
	}
	// A result of another kind or version is an error, or an empty object; only Document reports these.
	for _, name := range []string{"apiVersion", "kind"} {
		if _, named := changes[name]; named {
			return false
		}
	}
	part, ok := newPart(original, into, changes)
	_, metadata := changes["metadata"]
	// managedFields, and fields of types such as RawExtension, contain JSON. A document keeps the order of the members
	// in it; a tree does not.
	if !ok || metadata && !part.owners || holdsJSON(part.original.Type()) {
		return false
	}
	tree, err := part.tree()
	if err != nil {
		return false
	}
	if MergeTree(tree, changes); !scheme.DecodeTree(tree, into) {
		return false
	}
	part.complete(into)
	return true
}

// jsonTypes caches the results of holdsJSON: reflect.Type -> bool.
var jsonTypes sync.Map

// holdsJSON reports whether objects of a Go type have fields with JSON of any form.
func holdsJSON(t reflect.Type) bool {
	if known, ok := jsonTypes.Load(t); ok {
		return known.(bool)
	}
	holds := searchJSON(t, map[reflect.Type]bool{})
	jsonTypes.Store(t, holds)
	return holds
}

// searchJSON returns false for a type that it is already searching (seen): otherwise a type that contains itself
// would never end.
func searchJSON(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == reflect.TypeFor[runtime.RawExtension]() || seen[t] {
		return !seen[t]
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return searchJSON(t.Elem(), seen)
	case reflect.Struct:
		seen[t] = true
		for i := range t.NumField() {
			if searchJSON(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}

// hasFraction reports whether a tree has a number that was not written as an integer, such as 1.5 and also 1.0. An
// integer field refuses 1.0 and accepts 1. Only Document reports that error, so MergeParts leaves such a patch to it.
func hasFraction(v any) bool {
	switch v := v.(type) {
	case float64:
		return true
	case map[string]any:
		for _, below := range v {
			if hasFraction(below) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasFraction)
	}
	return false
}

// A part has those top-level fields of an object that a patch names. All other fields are copied, because
// converting them to a tree and back would cost more than everything else. For example, a patch of the labels of
// a pod converts metadata without managedFields, and neither spec nor status.
type part struct {
	original reflect.Value
	// touched are the indexes of the fields that the patch names; embedded fields
	// (apiVersion and kind) always count.
	touched []bool
	names   map[string]bool
	// owners means that the patch changes metadata, but not managedFields. So managedFields, which cost most to convert,
	// are copied and not converted.
	owners bool
}

// newPart returns false if the whole object has to be converted.
func newPart(original, into runtime.Object, patch map[string]any) (part, bool) {
	v := reflect.ValueOf(original)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct || reflect.TypeOf(into) != v.Type() {
		return part{}, false
	}
	p := part{original: v.Elem(), touched: make([]bool, v.Elem().NumField()), names: map[string]bool{}}
	// A directive at the top, such as "$patch": "replace", concerns fields that the patch does not name.
	for name := range patch {
		if strings.HasPrefix(name, "$") {
			return part{}, false
		}
	}
	for i := range p.touched {
		field := p.original.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		// This is the embedded TypeMeta.
		if name == "" && field.Anonymous {
			p.touched[i], p.names["apiVersion"], p.names["kind"] = true, true, true
			continue
		}
		if name == "" || name == "-" || !field.IsExported() {
			return part{}, false
		}
		_, p.touched[i] = patch[name]
		p.names[name] = p.touched[i]
	}
	p.owners = namesLabels(patch["metadata"])
	return p, true
}

// namesLabels reports whether a patch of metadata does not change managedFields.
func namesLabels(metadata any) bool {
	fields, ok := metadata.(map[string]any)
	for name := range fields {
		if strings.HasPrefix(name, "$") || name == "managedFields" {
			return false
		}
	}
	return ok
}

// tree returns the touched fields as a tree. The conversion also writes empty fields whose JSON tag has no
// omitempty, such as an empty spec; they are not part of the patch and are removed.
func (p part) tree() (map[string]any, error) {
	some := reflect.New(p.original.Type())
	for i, touched := range p.touched {
		if touched {
			some.Elem().Field(i).Set(p.original.Field(i))
		}
	}
	if meta, ok := some.Interface().(metav1.Object); ok && p.owners {
		meta.SetManagedFields(nil)
	}
	tree, err := scheme.ToTree(some.Interface().(runtime.Object))
	for name := range tree {
		if !p.names[name] {
			delete(tree, name)
		}
	}
	return tree, err
}

// complete copies the fields that the patch does not name into the patched object. It copies them deeply, because
// original is shared with other readers.
func (p part) complete(into runtime.Object) {
	rest := reflect.New(p.original.Type())
	for i, touched := range p.touched {
		if !touched {
			rest.Elem().Field(i).Set(p.original.Field(i))
		}
	}
	if meta, ok := p.original.Addr().Interface().(metav1.Object); ok && p.owners {
		rest.Interface().(metav1.Object).SetManagedFields(meta.GetManagedFields())
	}
	copied := rest.Interface().(runtime.Object).DeepCopyObject()
	out, from := reflect.ValueOf(into).Elem(), reflect.ValueOf(copied).Elem()
	for i, touched := range p.touched {
		if !touched {
			out.Field(i).Set(from.Field(i))
		}
	}
	if p.owners {
		if meta, ok := into.(metav1.Object); ok {
			meta.SetManagedFields(copied.(metav1.Object).GetManagedFields())
		}
	}
}

// strategicTree is Strategic for any object and patch.
func strategicTree(
	original, into runtime.Object, patch map[string]any, strict []error, v Validation,
) ([]string, error) {
	tree, err := scheme.ToTree(original)
	if err != nil {
		return nil, plain(err)
	}
	merged, err := merge(tree, patch, into)
	if err != nil {
		return nil, err
	}
	err = scheme.FromTree(merged, into, v.checks())
	return strictResult(func() string { return fmt.Sprintf("%+v", patch) }, strict, err, v)
}

// merge applies a strategic merge patch to a tree.
func merge(tree, patch map[string]any, into runtime.Object) (merged map[string]any, err error) {
	defer func() {
		// The library uses the values of merge keys as keys of maps. It panics if a value is a list or an object.
		if p := recover(); p != nil {
			merged, err = nil, unprocessable(fmt.Errorf("the patch cannot be merged: %v", p))
		}
	}()
	if merged, err = strategicpatch.StrategicMergeMapPatch(tree, patch, into); err != nil {
		return nil, strategicError(err)
	}
	// The conversion below parses quantities, even very expensive ones.
	if err := scheme.CheckQuantities(into, merged); err != nil {
		return nil, invalid(fmt.Sprintf("%+v", patch), err.Error())
	}
	return merged, nil
}

func decodeTree(body []byte, v Validation) (tree map[string]any, strict []error, err error) {
	if v.checks() {
		strict, err = scheme.UnmarshalTreeStrict(body, &tree)
	} else {
		err = scheme.UnmarshalTree(body, &tree)
	}
	if err == nil {
		err = scheme.CheckTreeDepth(tree)
	}
	if err != nil {
		return nil, nil, kerrors.NewBadRequest(err.Error())
	}
	return tree, strict, nil
}

// strategicError returns the response to a patch that the library refused. kube-apiserver answers 400 or 422 to the
// errors that the library names, and 500 to all others. Three of these others stay 500, because clients know their
// texts: an unknown directive, an element without its merge key, and a $setElementOrder list that does not fit. The
// rest are faults of the patch too, such as lists of mixed elements, and are answered 422. If a patch has several
// faults, the order of a map decides which one the library finds. So with 500 this server could answer 500 where
// kube-apiserver answers 422.
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
	text := err.Error()
	directive := strings.HasPrefix(text, "unknown patch type: ") && !strings.Contains(text, "%!s(")
	order := slices.ContainsFunc(orderErrors, func(begin string) bool { return strings.HasPrefix(text, begin) })
	if directive || order || strings.HasPrefix(text, "map: ") && strings.Contains(text, " does not contain declared merge key: ") {
		return plain(err)
	}
	return unprocessable(err)
}

// orderErrors are the beginnings of the library's errors about a $setElementOrder list that does not fit, and about a
// list in which an element has a directive to merge.
var orderErrors = []string{
	"The order in patch list:\n", "expected a []interface {}, but received a ", "expected slice or array type, but got: ",
	"unable to find api field in struct ", "value for key ", "merging lists cannot yet be specified in the patch",
	"expected a map[string]interface {}, but received a ", "no elements in any of the given slices",
}
