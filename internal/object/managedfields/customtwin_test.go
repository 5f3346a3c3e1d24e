package managedfields

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	smdtyped "sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/mergeschema"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// customSchema has all kinds of maps and lists that the definition of a custom resource can declare.
const customSchema = `types:
- name: root
  map:
    fields:
    - {name: apiVersion, type: {scalar: string}}
    - {name: kind, type: {scalar: string}}
    - {name: metadata, type: {namedType: meta}}
    - {name: spec, type: {namedType: spec}}
    - {name: status, type: {map: {elementType: {scalar: numeric}}}}
- name: meta
  map:
    fields:
    - {name: name, type: {scalar: string}}
    - {name: uid, type: {scalar: string}}
    - {name: labels, type: {map: {elementType: {scalar: string}}}}
    - {name: annotations, type: {map: {elementType: {scalar: string}}}}
    - {name: managedFields, type: {list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}}}
- name: spec
  map:
    fields:
    - {name: text, type: {scalar: string}}
    - {name: number, type: {scalar: numeric}}
    - {name: flag, type: {scalar: boolean}}
    - {name: either, type: {scalar: untyped}}
    - {name: atomicMap, type: {map: {elementType: {scalar: string}, elementRelationship: atomic}}}
    - {name: atomicList, type: {list: {elementType: {namedType: item}, elementRelationship: atomic}}}
    - {name: texts, type: {list: {elementType: {scalar: string}, elementRelationship: associative}}}
    - {name: numbers, type: {list: {elementType: {scalar: numeric}, elementRelationship: associative}}}
    - {name: items, type: {list: {elementType: {namedType: item}, elementRelationship: associative, keys: [name]}}}
    - {name: ports, type: {list: {elementType: {namedType: port}, elementRelationship: associative, keys: [port, protocol]}}}
    - {name: defaults, type: {list: {elementType: {namedType: defaulted}, elementRelationship: associative, keys: [protocol]}}}
    - {name: byName, type: {map: {elementType: {namedType: item}}}}
    - {name: anything, type: {namedType: __untyped_deduced_}}
    - {name: atomic, type: {namedType: __untyped_atomic_}}
    - {name: inner, type: {namedType: inner}}
- name: inner
  map:
    fields:
    - {name: text, type: {scalar: string}}
    - {name: items, type: {list: {elementType: {namedType: item}, elementRelationship: associative, keys: [name]}}}
    - {name: ports, type: {list: {elementType: {namedType: port}, elementRelationship: associative, keys: [port, protocol]}}}
    - {name: more, type: {namedType: item}}
- name: item
  map:
    fields:
    - {name: name, type: {scalar: string}}
    - {name: value, type: {scalar: string}}
    - {name: tags, type: {list: {elementType: {scalar: string}, elementRelationship: associative}}}
    - {name: sizes, type: {map: {elementType: {scalar: numeric}}}}
- name: port
  map:
    fields:
    - {name: port, type: {scalar: numeric}}
    - {name: protocol, type: {scalar: string}, default: TCP}
    - {name: name, type: {scalar: string}}
    - {name: item, type: {namedType: item}}
- name: defaulted
  map:
    fields:
    - {name: protocol, type: {scalar: string}, default: TCP}
    - {name: value, type: {scalar: string}}
- name: __untyped_atomic_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
- name: __untyped_deduced_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_deduced_}, elementRelationship: separable}
`

// customTypes converts objects of customSchema.
type customTypes struct {
	mergeschema.Converter
	root smdtyped.ParseableType
}

func (c customTypes) ObjectToTyped(
	object runtime.Object, options ...smdtyped.ValidationOptions,
) (*smdtyped.TypedValue, error) {
	return c.root.FromUnstructured(object.(*unstructured.Unstructured).Object, options...)
}

// customResource is a custom resource whose status is a subresource.
func customResource() testKind {
	parser, err := smdtyped.NewParser(customSchema)
	if err != nil {
		panic(err)
	}
	return asTrees(testKind{
		gvk:   schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Custom"},
		types: customTypes{root: parser.Type("root")},
		reset: reset("example.com/v1", "status"),
	}, false)
}

// custom makes a random object of a shape.
func (f filler) custom(k testKind, m *Manager) registry.Object {
	m.incremental.prepare()
	tree := map[string]any{"spec": f.shaped(m.incremental.shape.field("spec"), 0)}
	if f.Intn(4) == 0 {
		tree["status"] = f.shaped(m.incremental.shape.field("status"), 0)
	}
	tree["metadata"] = map[string]any{
		"name": "a", "labels": f.shaped(m.incremental.shape.field("metadata").field("labels"), 1),
	}
	tree["apiVersion"], tree["kind"] = k.gvk.GroupVersion().String(), k.gvk.Kind
	object := &unstructured.Unstructured{Object: tree}
	object.SetCreationTimestamp(metav1.Time{})
	delete(tree["metadata"].(map[string]any), "creationTimestamp")
	return object
}

// shaped makes a random value of a shape.
func (f filler) shaped(s *shape, depth int) any {
	if f.Intn(40) == 0 && depth > 0 {
		return nil
	}
	switch {
	case s.isMap && (s.scalar == noScalar || depth < 4 && f.Intn(3) > 0):
		return f.shapedMap(s, depth)
	case s.isList && (s.scalar == noScalar || depth < 4 && f.Intn(3) == 0):
		return f.shapedList(s, depth)
	}
	switch s.scalar {
	case text:
		return f.word()
	case boolean:
		return f.Intn(2) == 0
	case numeric:
		return f.number()
	}
	return []any{f.word(), f.number(), true}[f.Intn(3)]
}

func (f filler) number() any {
	if f.Intn(20) == 0 {
		return []any{0.5, 1.0}[f.Intn(2)]
	}
	return int64(f.Intn(4))
}

func (f filler) shapedMap(s *shape, depth int) map[string]any {
	out := map[string]any{}
	var names []string
	for name := range s.fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if f.Intn(3) > 0 {
			out[name] = f.shaped(s.fields[name].shape, depth+1)
		}
	}
	if s.element != nil {
		for range f.Intn(4) {
			out[f.word()] = f.shaped(s.element, depth+1)
		}
	}
	return out
}

func (f filler) shapedList(s *shape, depth int) []any {
	out := []any{}
	for i := range f.Intn(5) {
		item := f.shaped(s.item, depth+1)
		members, isMap := item.(map[string]any)
		if isMap && f.Intn(30) > 0 {
			if _, has := s.item.fields["name"]; has && slices.Contains(s.keys, "name") {
				members["name"] = fmt.Sprint("n", i+f.Intn(2)*f.Intn(2))
			}
			if slices.Contains(s.keys, "port") {
				members["port"] = int64(i + f.Intn(2)*f.Intn(2))
			}
		}
		if s.associative && len(s.keys) == 0 && slices.ContainsFunc(
			out, func(other any) bool { return scheme.EqualTreeValues(other, item) },
		) && f.Intn(30) > 0 {
			continue
		}
		if item != nil || !s.associative {
			out = append(out, item)
		}
	}
	return out
}
