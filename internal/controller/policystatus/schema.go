package policystatus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/keelson-dev/keelson/internal/api/discovery/openapi/archive"
)

// schemas has the schemas of one OpenAPI document.
type schemas struct {
	encoded map[string][]byte // by name
	decoded map[string]*spec.Schema
	// open are the names of the schemas that are being expanded, to detect recursion.
	open map[string]bool
}

// maxRecentTypes is the number of types that are kept. Policies that change together often use the same few kinds,
// and it takes about ten milliseconds to make the type of a Pod.
const maxRecentTypes = 4

// recentTypes are the types that were used last, the latest first. Only the goroutine of the controller uses them.
type recentTypes []recentType

type recentType struct {
	kind     schema.GroupVersionKind
	name     string
	document []byte // the document that the type was made from
	typ      *apiservercel.DeclType
}

// find returns a type that was made from the document, nil if there is none.
func (r recentTypes) find(kind schema.GroupVersionKind, name string, document []byte) *apiservercel.DeclType {
	for i, t := range r {
		if t.kind == kind && t.name == name && bytes.Equal(t.document, document) {
			copy(r[1:i+1], r[:i])
			r[0] = t
			return t.typ
		}
	}
	return nil
}

// add adds a type. It replaces an older type of the same kind.
func (r *recentTypes) add(t recentType) {
	others := slices.DeleteFunc(*r, func(old recentType) bool { return old.kind == t.kind && old.name == t.name })
	*r = slices.Insert(others[:min(len(others), maxRecentTypes-1)], 0, t)
}

// typeOf returns the type of the objects of a kind. name is the name of the type in messages.
func (c *Controller) typeOf(
	ctx context.Context, kind schema.GroupVersionKind, name string,
) (*apiservercel.DeclType, error) {
	path := "api/" + kind.Version
	if kind.Group != "" {
		path = "apis/" + kind.Group + "/" + kind.Version
	}
	document, err := c.Documents(ctx, path)
	if err != nil {
		return nil, err
	}
	if typ := c.types.find(kind, name, document); typ != nil {
		return typ, nil
	}
	typ, err := typeIn(document, kind, name)
	if err == nil {
		c.types.add(recentType{kind, name, document, typ})
	}
	return typ, err
}

// typeIn returns the type of a kind whose schema is in an OpenAPI document.
func typeIn(document []byte, kind schema.GroupVersionKind, name string) (*apiservercel.DeclType, error) {
	all, err := schemasOf(document)
	if err != nil {
		return nil, err
	}
	definition, err := all.find(kind)
	if err != nil {
		return nil, err
	}
	expanded, err := all.expandName(definition)
	if err != nil {
		return nil, err
	}
	typ := common.SchemaDeclType(&openapi.Schema{Schema: expanded}, true)
	if typ == nil {
		return apiservercel.DynType, nil
	}
	return typ.MaybeAssignTypeName(name), nil
}

func schemasOf(document []byte) (*schemas, error) {
	text, found, err := archive.Find(document, "components", "schemas")
	if err != nil || !found {
		return nil, fmt.Errorf("the OpenAPI document has no schemas: %w", err)
	}
	members, err := archive.Members(text)
	if err != nil {
		return nil, err
	}
	s := &schemas{encoded: map[string][]byte{}, decoded: map[string]*spec.Schema{}, open: map[string]bool{}}
	for _, m := range members {
		s.encoded[string(m.Key)] = m.Value
	}
	return s, nil
}

// find returns the name of the schema of a kind.
func (s *schemas) find(kind schema.GroupVersionKind) (string, error) {
	const member = "x-kubernetes-group-version-kind"
	for name, text := range s.encoded {
		if !bytes.Contains(text, []byte(member)) {
			continue
		}
		var described struct {
			Kinds []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}
		if err := json.Unmarshal(text, &described); err != nil {
			return "", err
		}
		if slices.Contains(described.Kinds, kind) {
			return name, nil
		}
	}
	return "", fmt.Errorf("there is no schema of %v", kind)
}

func (s *schemas) named(name string) (*spec.Schema, error) {
	if found := s.decoded[name]; found != nil {
		return found, nil
	}
	out := &spec.Schema{}
	if err := json.Unmarshal(s.encoded[name], out); err != nil {
		return nil, fmt.Errorf("schema %s: %w", name, err)
	}
	s.decoded[name] = out
	return out, nil
}

// expandName returns the schema with this name, with all references replaced by the schemas that they name. A
// schema that contains itself becomes an object without fields at that place.
func (s *schemas) expandName(name string) (*spec.Schema, error) {
	if s.open[name] {
		return &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}, nil
	}
	found, err := s.named(name)
	if err != nil {
		return nil, err
	}
	s.open[name] = true
	defer delete(s.open, name)
	return s.expand(found)
}

// expand returns a copy of a schema in which references are replaced by the schemas that they name.
func (s *schemas) expand(in *spec.Schema) (*spec.Schema, error) {
	if name := reference(in); name != "" {
		return s.expandName(name)
	}
	out := *in
	var err error
	if len(in.Properties) > 0 {
		out.Properties = make(map[string]spec.Schema, len(in.Properties))
		for name := range in.Properties {
			property := in.Properties[name]
			expanded, err := s.expand(&property)
			if err != nil {
				return nil, err
			}
			out.Properties[name] = *expanded
		}
	}
	if a := in.AdditionalProperties; a != nil && a.Schema != nil {
		values := *a
		if values.Schema, err = s.expand(a.Schema); err != nil {
			return nil, err
		}
		out.AdditionalProperties = &values
	}
	if i := in.Items; i != nil && i.Schema != nil {
		items := *i
		if items.Schema, err = s.expand(i.Schema); err != nil {
			return nil, err
		}
		out.Items = &items
	}
	return &out, nil
}

// reference returns the name of the schema that another one refers to, "" if it refers to none. A reference with a
// description or a default is the only element of allOf.
func reference(in *spec.Schema) string {
	ref := in.Ref.String()
	if ref == "" && len(in.AllOf) == 1 {
		ref = in.AllOf[0].Ref.String()
	}
	return strings.TrimPrefix(ref, archive.RefV3)
}
