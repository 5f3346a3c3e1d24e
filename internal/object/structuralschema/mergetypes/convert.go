// Package mergetypes converts structural schemas to merge schemas (see package mergeschema), by which server-side apply
// (KEP-555) merges custom resources.
//
// The result is the same as that of kube-apiserver, which publishes the schema of the definition as OpenAPI v3 and
// converts that document.
//
// Example: the schema {type: object, properties: {ports: {type: array, x-kubernetes-list-type: map,
// x-kubernetes-list-map-keys: [port], items: {type: object, properties: {port: {type: integer}}}}}} becomes a map with
// a field ports, whose type is an associative list with the key port. So two managers can own two ports of the list.
package mergetypes

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/keelson-dev/keelson/internal/object/mergeschema"
	"github.com/keelson-dev/keelson/internal/object/structuralschema"
	"github.com/keelson-dev/keelson/internal/object/structuralschema/internal/shared"
)

// A Type is the merge schema of one version of a kind.
type Type struct {
	schema schema.Schema
	root   string
}

// New returns the merge schema of objects with the schema s. nil means a version without a usable schema, whose objects
// may contain anything.
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

// Parseable returns the type from which typed values are made. It must not be changed.
func (t *Type) Parseable() typed.ParseableType {
	return typed.ParseableType{Schema: &t.schema, TypeRef: schema.TypeRef{NamedType: &t.root}}
}

// A Cache makes one Type for each schema. It refers to the Type weakly, so that unused types are garbage collected. The
// zero Cache is empty. Its methods may be called concurrently.
type Cache struct {
	types shared.Map[*structuralschema.Schema, Type]
}

// Type returns the Type of s.
func (c *Cache) Type(s *structuralschema.Schema) *Type {
	t, err := c.types.Get(s, func() (*Type, error) { return New(s), nil })
	if err != nil {
		panic(err) // New does not fail
	}
	return t
}

// A Converter converts the objects of one custom resource, in all its versions, to typed values and back.
type Converter struct {
	kind  runtimeschema.GroupKind
	types map[string]func() *Type
}

var _ managedfields.TypeConverter = &Converter{}

// NewConverter returns the converter of a kind. versions are the schemas of its versions by name; a schema may be nil,
// see New. The Type of a version is made at its first use.
func (c *Cache) NewConverter(kind runtimeschema.GroupKind, versions map[string]*structuralschema.Schema) *Converter {
	out := &Converter{kind: kind, types: make(map[string]func() *Type, len(versions))}
	for name, s := range versions {
		out.types[name] = sync.OnceValue(func() *Type { return c.Type(s) })
	}
	return out
}

// ObjectToTyped returns the object as a typed value of the version named in its apiVersion. The value refers to the
// object. It fails if the version does not exist, or if the object is invalid by its schema (a duplicate key in a list,
// an unknown field) and the options do not allow that.
func (c *Converter) ObjectToTyped(
	object runtime.Object, options ...typed.ValidationOptions,
) (*typed.TypedValue, error) {
	gvk := object.GetObjectKind().GroupVersionKind()
	typeOf := c.types[gvk.Version]
	if typeOf == nil || gvk.GroupKind() != c.kind {
		// The packages of managedfields recognize this error: the version is not served any more.
		return mergeschema.Converter{}.ObjectToTyped(object, options...)
	}
	return mergeschema.ToTyped(typeOf().Parseable(), object, options...)
}

// TypedToObject returns the value as an unstructured object.
func (c *Converter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	return mergeschema.ToObject(value)
}

const (
	rootType       = "object"
	objectMetaType = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
)

// untyped is the type of any value that has one owner as a whole. deduced is the type of any value whose fields are
// derived from the object, each with owners of its own.
var (
	untypedName, deducedName = "__untyped_atomic_", "__untyped_deduced_"
	untyped                  = schema.TypeRef{NamedType: &untypedName}
	deduced                  = schema.TypeRef{NamedType: &deducedName}
)

// common returns the types that all kinds need: metadata, untyped and deduced.
var common = sync.OnceValue(func() []schema.TypeDef {
	kind, ok := mergeschema.Builtin("", "v1", "ConfigMap")
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

// node is a schema. preserving means that a schema above it preserves unknown fields.
type node struct {
	*structuralschema.Schema
	preserving bool
}

// converting is the conversion of one schema.
type converting struct {
	known map[node]schema.Atom // results so far
}

// ref returns a reference to the type of s.
func (c *converting) ref(s *structuralschema.Schema, preserving bool) schema.TypeRef {
	n := node{s, preserving || s.PreserveUnknownFields}
	a, ok := c.known[n]
	if !ok {
		a = c.atom(n, s.EmbeddedResource)
		c.known[n] = a
	}
	return schema.TypeRef{Inlined: a, Nullable: s.Nullable}
}

// atom returns the type of a node. resource means that its objects have apiVersion, kind and metadata.
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

// format returns the format of strings and numbers, or "".
func format(s *structuralschema.Schema) string {
	if s.Values == nil {
		return ""
	}
	return s.Values.Format
}

func scalar(s schema.Scalar) schema.Atom { return schema.Atom{Scalar: &s} }

// fields returns the type of the objects of a node.
func (c *converting) fields(n node, resource bool) *schema.Map {
	m := &schema.Map{}
	switch n.MapType {
	case "atomic":
		m.ElementRelationship = schema.Atomic
	case "granular":
		m.ElementRelationship = schema.Separable
	}
	for name, s := range n.Properties {
		if !resource || !inAllResources(name) {
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

// inAllResources reports whether all resources have a field of that name.
func inAllResources(name string) bool {
	return name == "apiVersion" || name == "kind" || name == "metadata"
}

// items returns the type of the arrays of a node.
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
