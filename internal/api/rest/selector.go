package rest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// fieldSet resolves the field labels of one version of a kind.
type fieldSet struct {
	kind    *registry.Kind
	version *registry.Version
	names   map[string]bool
}

func newFieldSet(k *registry.Kind, v *registry.Version) *fieldSet {
	f := &fieldSet{kind: k, version: v, names: map[string]bool{"metadata.name": true, "metadata.namespace": true}}
	for _, field := range k.Selection.Fields {
		f.names[field.Name] = true
	}
	return f
}

// resolve returns the field that a label of this version stands for.
func (f *fieldSet) resolve(label string) (string, error) {
	if name, ok := f.version.FieldAliases[label]; ok {
		return name, nil
	}
	// Kinds with an error of their own know metadata.namespace only if they are namespaced; the others accept it
	// for every scope.
	if label == "metadata.namespace" && !f.kind.Namespaced && f.kind.Selection.FieldError != nil {
		return "", f.kind.Selection.FieldError(f.version.Name, label)
	}
	// A version with aliases has names of its own for all fields except those of metadata.
	if f.names[label] && (len(f.version.FieldAliases) == 0 || strings.HasPrefix(label, "metadata.")) {
		return label, nil
	}
	if f.kind.Selection.FieldError != nil {
		return "", f.kind.Selection.FieldError(f.version.Name, label)
	}
	return "", fmt.Errorf("%q is not a known field selector: only \"metadata.name\", \"metadata.namespace\"", label)
}

// labelSet implements labels.Labels for the sorted labels of a cached object. The labels must be sorted by key,
// as the cache keeps them: find is a binary search, so that matching makes no map for each object.
type labelSet []cache.Label

func (l labelSet) find(key string) (string, bool) {
	i, ok := slices.BinarySearchFunc(l, key, func(a cache.Label, key string) int { return strings.Compare(a.Key, key) })
	if !ok {
		return "", false
	}
	return l[i].Value, true
}

// Has implements labels.Labels.
func (l labelSet) Has(key string) bool { _, ok := l.find(key); return ok }

// Get implements labels.Labels.
func (l labelSet) Get(key string) string { v, _ := l.find(key); return v }

// Lookup implements labels.Labels.
func (l labelSet) Lookup(key string) (string, bool) { return l.find(key) }

// selection has the conditions of a list, watch or deletecollection.
type selection struct {
	s         *served
	namespace string
	// name is set if a field selector or the path names one object.
	name   string
	labels labels.Selector // nil: everything
	fields []requirement
	// index is the indexed field that must equal value; "" if there is none.
	index, value string
	// retain bounds the objects that a page retains, in bytes, if they are not in memory anyway.
	retain int
}

// requirement is one term of a field selector: "spec.nodeName=a" or, with equal false, "spec.nodeName!=a".
type requirement struct {
	field, value string
	equal        bool
}

// selectionFor returns the selection of a list or a watch, and validates its options. It reports first values that
// cannot be parsed, then options that contradict each other, then fields that do not exist.
func selectionFor(ctx context.Context, s *served, namespace, name string, o *listOptions, watch bool) (*selection, error) {
	sel := &selection{s: s, namespace: namespace, name: name, retain: s.pageBytes}
	requirements, err := sel.parse(ctx, o.LabelSelector, o.FieldSelector)
	if err != nil {
		return nil, err
	}
	if err := o.validate(watch); err != nil {
		return nil, err
	}
	return sel, sel.requireAll(requirements)
}

// newSelection makes a selection from selectors only, without other list options.
func newSelection(ctx context.Context, s *served, namespace, name, labelText, fieldText string) (*selection, error) {
	sel := &selection{s: s, namespace: namespace, name: name, retain: s.pageBytes}
	requirements, err := sel.parse(ctx, labelText, fieldText)
	if err != nil {
		return nil, err
	}
	return sel, sel.requireAll(requirements)
}

// parse parses both selectors. It stores the label selector in sel, and returns the requirements of the field
// selector for requireAll. Selectors may be long and expensive; request.ServedLabels counts their memory for the
// user.
func (sel *selection) parse(ctx context.Context, labelText, fieldText string) (fields.Requirements, error) {
	if labelText != "" {
		parsed, err := request.ServedLabels(ctx, labelText)
		if err != nil {
			return nil, apierr.Selector(err)
		}
		if !parsed.Empty() {
			sel.labels = parsed
		}
	}
	if fieldText == "" {
		return nil, nil
	}
	parsed, err := request.ServedFields(ctx, fieldText)
	if err != nil {
		return nil, apierr.Selector(err)
	}
	return parsed.Requirements(), nil
}

func (sel *selection) requireAll(requirements fields.Requirements) error {
	for _, r := range requirements {
		if r.Field == "" && r.Value == "" {
			continue
		}
		field, err := sel.s.fields.resolve(r.Field)
		if err != nil {
			return kerrors.NewBadRequest(err.Error())
		}
		sel.require(field, r.Value, r.Operator == "=" || r.Operator == "==")
	}
	return nil
}

// require adds a requirement of a field selector. With equal the field must have the value,
// otherwise it must not.
func (sel *selection) require(field, value string, equal bool) {
	if field == "metadata.name" && equal {
		// Two different names: no object matches, which is not an error.
		if sel.name != "" && sel.name != value {
			sel.fields = append(sel.fields, requirement{field, value, true})
			return
		}
		sel.name = value
		if value == "" {
			sel.fields = append(sel.fields, requirement{field, value, true})
		}
		return
	}
	// One index is enough: the requirement itself is kept too, and every object from the index is compared with
	// all requirements.
	if equal && sel.index == "" {
		for _, f := range sel.s.Kind.Selection.Fields {
			if f.Name == field && f.Index {
				sel.index, sel.value = field, value
			}
		}
	}
	sel.fields = append(sel.fields, requirement{field, value, equal})
}

// everything reports whether there is no condition except the namespace. Only then the page can be made from
// whole chunks of the cache, and remainingItemCount is known.
func (sel *selection) everything() bool {
	return sel.labels == nil && len(sel.fields) == 0 && sel.name == ""
}

// matches reports whether an object matches the conditions, except for the namespace.
func (sel *selection) matches(ctx context.Context, o *cache.Object) (bool, error) {
	if !sel.matchesLabels(o) {
		return false, nil
	}
	return sel.matchesFields(ctx, o)
}

// matchesLabels compares only the name and the labels.
func (sel *selection) matchesLabels(o *cache.Object) bool {
	return (sel.name == "" || o.Name == sel.name) && (sel.labels == nil || sel.labels.Matches(labelSet(o.Labels)))
}

// needsPreparing reports whether the field selector has a field that is read from the item JSON of objects.
// Objects should then be prepared together.
func (sel *selection) needsPreparing() bool {
	return slices.ContainsFunc(sel.fields, func(r requirement) bool { return sel.s.Resource.Renderer.PreparesFields(r.field) })
}

func (sel *selection) matchesFields(ctx context.Context, o *cache.Object) (bool, error) {
	for _, r := range sel.fields {
		v, err := sel.s.Resource.Renderer.FieldValue(ctx, o, r.field)
		if err != nil {
			return false, err
		}
		if (v == r.value) != r.equal {
			return false, nil
		}
	}
	return true, nil
}

// prefix is the key prefix of the selection's namespace.
func (sel *selection) prefix() string {
	if sel.s.Kind.Namespaced && sel.namespace != "" {
		return sel.namespace + "/"
	}
	return ""
}

// interest returns the changes that wake a watch of the selection. It may include changes that the selection does
// not match, but must not leave out any that it matches.
func (sel *selection) interest() cache.Interest {
	in := cache.Interest{}
	if sel.s.Kind.Namespaced {
		in.Namespace = sel.namespace
	}
	switch {
	case sel.name != "" && (!sel.s.Kind.Namespaced || sel.namespace != ""):
		in.Name = sel.name
	case sel.index != "":
		in.Index, in.Value = sel.index, sel.value
	}
	return in
}
