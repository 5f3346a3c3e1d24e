// Package declare has helpers for the declarations of built-in kinds: defaults of single fields, common subresources
// and error messages.
package declare

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/names"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// Value sets *p if it is the zero value.
func Value[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

// Pointer sets *p if it is nil.
func Pointer[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

// RoundUp rounds quantities up to thousandths, the highest precision in the API.
// kube-apiserver does the same when it decodes: 0.0001 CPU becomes 1m. The result is never less than what was
// asked for.
func RoundUp(list corev1.ResourceList) {
	for name, q := range list {
		q.RoundUp(resource.Milli)
		list[name] = q
	}
}

// PartVerbs are the verbs of a subresource that is a part of its parent object, such as
// status.
var PartVerbs = []string{"get", "patch", "update"}

// Status returns a status subresource. resets are its Subresource.Resets; without any they are "spec".
func Status(resets ...string) registry.Subresource {
	if len(resets) == 0 {
		resets = []string{"spec"}
	}
	return registry.Subresource{Name: "status", Verbs: PartVerbs, Status: true, Resets: resets}
}

// Scale returns a scale subresource for objects of type T.
func Scale[T registry.Object](
	get func(T) (spec, status int32, selector string), set func(T, int32),
) registry.Subresource {
	return registry.Subresource{
		Name:  "scale",
		GVK:   schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"},
		Verbs: PartVerbs,
		Scale: &registry.Scale{
			Get: func(o registry.Object) (int32, int32, string) { return get(o.(T)) },
			Set: func(o registry.Object, n int32) error { set(o.(T), n); return nil },
		},
	}
}

// Version returns a version of a kind with objects of type *T. set sets the defaults; it may
// be nil.
func Version[T any, P interface {
	*T
	registry.Object
}](name string, set func(P)) registry.Version {
	v := registry.Version{Name: name, New: func() registry.Object { return P(new(T)) }}
	if set != nil {
		v.Default = registry.Defaulter(set)
	}
	return v
}

// Review returns the kind of *T, of which objects are only created: they are answered, not stored. pkg is the first part
// of the name of its group, such as authorization.
func Review[T any, P interface {
	*T
	registry.Object
}](pkg string, namespaced bool) *registry.Kind {
	name := reflect.TypeFor[T]().Name()
	return &registry.Kind{
		Names: registry.Names{
			Group: pkg + ".k8s.io", Package: pkg, Resource: strings.ToLower(name) + "s", Name: name, Namespaced: namespaced,
		},
		Versions: []registry.Version{Version[T, P]("v1", nil)},
		Storage:  registry.Storage{Version: "v1"},
		Requests: registry.Requests{Verbs: []string{"create"}},
	}
}

// FieldLabel returns the error for an unknown field label, without the name of the kind.
// kube-apiserver words this error differently from kind to kind, and clients see the text. A kind that has
// no error of its own uses none of the three functions.
func FieldLabel(_, label string) error {
	return kerrors.NewBadRequest("field label not supported: " + label)
}

// FieldLabelForKind returns a function like FieldLabel. Its error for an unknown field label has the name of the
// kind.
func FieldLabelForKind(kind string) func(version, label string) error {
	return func(_, label string) error {
		return kerrors.NewBadRequest(fmt.Sprintf("field label %q not supported for %s", label, kind))
	}
}

// FieldLabelForGVK returns a function that makes this error with group, version and kind.
func FieldLabelForGVK(group, kind string) func(version, label string) error {
	return func(version, label string) error {
		gvk := schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
		return kerrors.NewBadRequest(fmt.Sprintf("field label not supported for %s: %s", gvk, label))
	}
}

// PodNameWarnings returns a warning if a name is not a DNS label, for objects whose pods have
// names and hostnames with that name.
// For example, my.job is a valid name of a Job, but a hostname cannot have a dot.
func PodNameWarnings(name string) []string {
	msgs := names.IsDNS1123Label(name)
	if len(msgs) == 0 {
		return nil
	}
	path := field.NewPath("metadata", "name")
	return []string{
		fmt.Sprintf("%s: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS "+
			"label is recommended: %v", path, msgs)}
}

// EntriesOrAll validates a list that has to have entries, and only "*" if it has "*". missing is the detail of the error
// for an empty list, and what are the entries in messages.
func EntriesOrAll[T ~string](list []T, path *field.Path, missing, what string) field.ErrorList {
	switch {
	case len(list) == 0:
		return field.ErrorList{field.Required(path, missing)}
	case len(list) > 1 && slices.Contains(list, "*"):
		return field.ErrorList{field.Invalid(path, list, "if '*' is present, must not specify other "+what)}
	}
	return nil
}

// Texts returns a text of each element of a list, nil if there are none.
func Texts[T any](list []T, of func(T) string) []string {
	var out []string
	for _, element := range list {
		out = append(out, of(element))
	}
	return out
}

// PathSegment validates a name that may be any valid segment of a URL path.
func PathSegment(name string, prefix bool) []string {
	if prefix {
		return path.IsValidPathSegmentPrefix(name)
	}
	return path.IsValidPathSegmentName(name)
}
