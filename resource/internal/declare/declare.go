// Package declare holds what the declarations of built-in kinds share: columns,
// defaults of single fields, common subresources and wordings.
package declare

import (
	"fmt"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/registry"
)

// Value sets *p where it is the zero value.
func Value[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

// Pointer sets *p where it is nil.
func Pointer[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

// RoundUp rounds quantities up to thousandths, the finest the API keeps.
func RoundUp(list corev1.ResourceList) {
	for name, q := range list {
		q.RoundUp(resource.Milli)
		list[name] = q
	}
}

// Column is a column of a table. The description is mostly that of the field it
// shows.
func Column(name, kind, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: kind, Description: description}
}

// Wide is a column that is shown on request only.
func Wide(name, kind, description string) metav1.TableColumnDefinition {
	c := Column(name, kind, description)
	c.Priority = 1
	return c
}

// Cells makes the Cells of a registry.Table whose rows have no conditions.
func Cells[T any](cells func(T) []any) func(T) ([]any, []metav1.TableRowCondition) {
	return func(obj T) ([]any, []metav1.TableRowCondition) { return cells(obj), nil }
}

// PartVerbs are the verbs of a subresource that shows a part of its parent.
var PartVerbs = []string{"get", "patch", "update"}

// Status declares the status subresource.
func Status() registry.Subresource {
	return registry.Subresource{Name: "status", Verbs: PartVerbs, Status: true}
}

// Scale declares the scale subresource of a T.
func Scale[T registry.Object](get func(T) (spec, status int32, selector string), set func(T, int32)) registry.Subresource {
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

// Selector writes a label selector as the scale subresource and tables do.
func Selector(s *metav1.LabelSelector) string {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return "<invalid>"
	}
	return selector.String()
}

// Version declares one version of a kind, whose objects are of the type *T. set sets its defaults; nil sets none.
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

// FieldLabel words an unknown field label for kinds that say no more than that.
func FieldLabel(_, label string) error {
	return kerrors.NewBadRequest("field label not supported: " + label)
}

// FieldLabelForKind words it with the kind's name.
func FieldLabelForKind(kind string) func(version, label string) error {
	return func(_, label string) error {
		return kerrors.NewBadRequest(fmt.Sprintf("field label %q not supported for %s", label, kind))
	}
}

// FieldLabelForGVK words it with the kind's group, version and name.
func FieldLabelForGVK(group, kind string) func(version, label string) error {
	return func(version, label string) error {
		gvk := schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
		return kerrors.NewBadRequest(fmt.Sprintf("field label not supported for %s: %s", gvk, label))
	}
}

// PodNameWarnings warns about the name of an object from which Pods take their
// names and hostnames, where it is no DNS label.
func PodNameWarnings(name string) []string {
	msgs := validation.IsDNS1123Label(name)
	if len(msgs) == 0 {
		return nil
	}
	path := field.NewPath("metadata", "name")
	return []string{fmt.Sprintf("%s: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", path, msgs)}
}

// SomeOf joins the first of the words, and counts the rest.
func SomeOf(words []string, most int, separator string) string {
	if len(words) <= most {
		return strings.Join(words, separator)
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(words[:most], separator), len(words)-most)
}

// PathSegment is the rule of names that allows whatever can stand in a URL.
func PathSegment(name string, prefix bool) []string {
	if prefix {
		return path.IsValidPathSegmentPrefix(name)
	}
	return path.IsValidPathSegmentName(name)
}
