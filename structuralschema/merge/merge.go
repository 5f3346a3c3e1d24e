// Package merge makes of structural schemas the schemas by which objects are merged:
// which lists are sets or maps, by which keys, and what is atomic (KEP-555,
// server-side apply). They decide the fields of managedFields.
//
// The types are those that kube-apiserver has: it publishes the definition's schema as
// OpenAPI v3 and converts that.
package merge

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/keelson-dev/keelson/structuralschema"
	"github.com/keelson-dev/keelson/structuralschema/internal/shared"
	builtin "github.com/keelson-dev/keelson/typed"
)

// A Type is the merge schema of one version of a kind.
type Type struct {
	schema schema.Schema
	root   string
}

// New returns the merge schema of objects that s describes; nil stands for a version
// without a usable schema, whose objects may be anything.
func New(s *structuralschema.Schema) *Type {
	c := converting{known: map[node]schema.Atom{}}
	t := &Type{root: rootType}
	if s == nil {
		t.schema.Types = append(
			t.schema.Types, schema.TypeDef{Name: rootType, Atom: schema.Atom{Map: &schema.Map{ElementType: deduced}}},
		)
	} else {
		t.schema.Types = append(t.schema.Types, schema.TypeDef{Name: rootType, Atom: c.atom(node{s, false}, true)})
	}
	t.schema.Types = append(t.schema.Types, common()...)
	return t
}

// Parseable returns the type in the form that makes typed values.
func (t *Type) Parseable() typed.ParseableType {
	return typed.ParseableType{Schema: &t.schema, TypeRef: schema.TypeRef{NamedType: &t.root}}
}

// A Cache makes one Type for each schema, and forgets it when it is not used any
// more. The zero Cache is empty. Its methods may be called at the same time.
type Cache struct {
	types shared.Map[*structuralschema.Schema, Type]
}

// Type returns the Type of s.
func (c *Cache) Type(s *structuralschema.Schema) *Type {
	t, err := c.types.Get(s, func() (*Type, error) { return New(s), nil })
	if err != nil {
		panic(err) // making one cannot fail
	}
	return t
}

// A Converter makes typed values of the objects of one custom resource in all its
// versions, and objects of typed values.
type Converter struct {
	kind  runtimeschema.GroupKind
	types map[string]func() *Type
}

var _ managedfields.TypeConverter = &Converter{}

// NewConverter returns the converter of a kind. versions are the schemas of its
// versions by name, as New takes them; a Type is made when it is first asked for.
func (c *Cache) NewConverter(kind runtimeschema.GroupKind, versions map[string]*structuralschema.Schema) *Converter {
	out := &Converter{kind: kind, types: make(map[string]func() *Type, len(versions))}
	for name, s := range versions {
		out.types[name] = sync.OnceValue(func() *Type { return c.Type(s) })
	}
	return out
}

// ObjectToTyped returns the object as a typed value of the version that it says it is
// of. The value refers to the object. One that is not valid by its schema (a
// duplicate key in a list, an unknown field) is an error unless the options allow it,
// and so is an object of a version that there is not.
func (c *Converter) ObjectToTyped(
	object runtime.Object, options ...typed.ValidationOptions,
) (*typed.TypedValue, error) {
	gvk := object.GetObjectKind().GroupVersionKind()
	make := c.types[gvk.Version]
	if make == nil || gvk.GroupKind() != c.kind {
		// The error is recognized as that of a version that is gone.
		return builtin.Converter{}.ObjectToTyped(object, options...)
	}
	t := make().Parseable()
	if u, ok := object.(*unstructured.Unstructured); ok {
		return t.FromUnstructured(u.UnstructuredContent(), options...)
	}
	return t.FromStructured(object, options...)
}

// TypedToObject returns the value as an unstructured object.
func (c *Converter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	content := value.AsValue().Unstructured()
	if m, ok := content.(map[string]any); ok {
		return &unstructured.Unstructured{Object: m}, nil
	}
	return nil, fmt.Errorf("failed to convert value to unstructured for type %T", content)
}

const (
	rootType       = "object"
	objectMetaType = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
)

// untyped is the type of what is owned as one, deduced that of what is owned as its
// objects say, field by field.
var (
	untypedName, deducedName = "__untyped_atomic_", "__untyped_deduced_"
	untyped                  = schema.TypeRef{NamedType: &untypedName}
	deduced                  = schema.TypeRef{NamedType: &deducedName}
)

// common are the types that all kinds need: of metadata and of anything.
var common = sync.OnceValue(func() []schema.TypeDef {
	kind, ok := builtin.For("", "v1", "ConfigMap")
	if !ok {
		panic("no schema of ConfigMaps")
	}
	untypedScalar := schema.Untyped
	anything := func(fields schema.TypeRef, relationship schema.ElementRelationship) schema.Atom {
		return schema.Atom{
			Scalar: &untypedScalar,
			List:   &schema.List{ElementType: untyped, ElementRelationship: schema.Atomic},
			Map:    &schema.Map{ElementType: fields, ElementRelationship: relationship},
		}
	}
	out := []schema.TypeDef{
		{Name: untypedName, Atom: anything(untyped, schema.Atomic)},
		{Name: deducedName, Atom: anything(deduced, schema.Separable)},
	}
	for _, t := range kind.Schema.Types {
		if strings.HasPrefix(t.Name, "io.k8s.apimachinery.pkg.apis.meta.v1.") {
			out = append(out, t)
		}
	}
	return out
})

// node is a schema and whether it is below one that preserves unknown fields.
type node struct {
	*structuralschema.Schema
	preserving bool
}

// converting is the conversion of one schema.
type converting struct {
	known map[node]schema.Atom
}

func (c *converting) ref(s *structuralschema.Schema, preserving bool) schema.TypeRef {
	n := node{s, preserving || s.PreserveUnknownFields}
	if a, ok := c.known[n]; ok {
		return schema.TypeRef{Inlined: a}
	}
	a := c.atom(n, s.EmbeddedResource)
	c.known[n] = a
	return schema.TypeRef{Inlined: a}
}

// atom returns the type of a node, which may be a resource.
func (c *converting) atom(n node, resource bool) schema.Atom {
	n.preserving = n.preserving || n.PreserveUnknownFields
	switch n.Type {
	case "object":
		return schema.Atom{Map: c.fields(n, resource)}
	case "array":
		return schema.Atom{List: c.items(n)}
	case "string":
		if f := format(n.Schema); f == "" || f == "byte" {
			return scalar(schema.String)
		}
		return scalar(schema.Untyped)
	case "integer", "number":
		return scalar(schema.Numeric)
	case "boolean":
		return scalar(schema.Boolean)
	}
	a := scalar(schema.Untyped)
	a.List, a.Map = c.items(n), c.fields(n, resource)
	return a
}

func format(s *structuralschema.Schema) string {
	if s.Values == nil {
		return ""
	}
	return s.Values.Format
}

func scalar(s schema.Scalar) schema.Atom { return schema.Atom{Scalar: &s} }

func (c *converting) fields(n node, resource bool) *schema.Map {
	m := &schema.Map{}
	switch n.MapType {
	case "atomic":
		m.ElementRelationship = schema.Atomic
	case "granular":
		m.ElementRelationship = schema.Separable
	}
	for name, s := range n.Properties {
		if !resource || !ofAllResources(name) {
			f := schema.StructField{Name: name, Type: c.ref(s, n.preserving)}
			if s.HasDefault {
				f.Default = s.Default
			}
			m.Fields = append(m.Fields, f)
		}
	}
	if resource {
		text := scalar(schema.String)
		objectMeta := objectMetaType
		m.Fields = append(m.Fields,
			schema.StructField{Name: "apiVersion", Type: schema.TypeRef{Inlined: text}},
			schema.StructField{Name: "kind", Type: schema.TypeRef{Inlined: text}},
			schema.StructField{Name: "metadata", Type: schema.TypeRef{NamedType: &objectMeta}})
	}
	slices.SortFunc(m.Fields, func(a, b schema.StructField) int { return strings.Compare(a.Name, b.Name) })
	switch {
	case n.AdditionalProperties != nil:
		m.ElementType = c.ref(n.AdditionalProperties, n.preserving)
	case n.NoProperties:
	case n.AnyProperties, n.preserving, len(m.Fields) == 0:
		m.ElementType = deduced
	}
	return m
}

// ofAllResources says whether a field is one that all resources have.
func ofAllResources(name string) bool {
	return name == "apiVersion" || name == "kind" || name == "metadata"
}

func (c *converting) items(n node) *schema.List {
	l := &schema.List{ElementType: untyped, ElementRelationship: schema.Atomic}
	switch n.ListType {
	case "set":
		l.ElementRelationship = schema.Associative
	case "map":
		l.ElementRelationship = schema.Associative
		l.Keys = n.ListMapKeys
	}
	if n.Items != nil {
		l.ElementType = c.ref(n.Items, n.preserving)
	}
	return l
}
