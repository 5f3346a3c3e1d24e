package openapi

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// resource is the part of a document for one version of a definition.
type resource struct {
	schema.GroupVersionKind
	listKind, plural          string
	namespaced, status, scale bool
	// preserve is spec.preserveUnknownFields of the definition.
	preserve         bool
	selectableFields []string
	// schema is the published schema, nil if there is none.
	schema map[string]any
}

// spec is the decoded part of the spec of a definition.
type spec struct {
	Names struct {
		Plural   string `json:"plural"`
		Kind     string `json:"kind"`
		ListKind string `json:"listKind"`
	} `json:"names"`
	Scope                 string        `json:"scope"`
	PreserveUnknownFields bool          `json:"preserveUnknownFields"`
	Versions              []specVersion `json:"versions"`
}

type specVersion struct {
	Name   string `json:"name"`
	Schema *struct {
		OpenAPIV3Schema rawText `json:"openAPIV3Schema"`
	} `json:"schema"`
	Subresources struct {
		Status *struct{} `json:"status"`
		Scale  *struct{} `json:"scale"`
	} `json:"subresources"`
	SelectableFields []struct {
		JSONPath string `json:"jsonPath"`
	} `json:"selectableFields"`
}

// rawText is JSON that is decoded only when it is needed.
type rawText []byte

// UnmarshalJSON implements json.Unmarshaler.
func (t *rawText) UnmarshalJSON(text []byte) error {
	*t = slices.Clone(text)
	return nil
}

func resourcesOf(gv schema.GroupVersion, ds []*definition) ([]*resource, error) {
	resources := make([]*resource, 0, len(ds))
	for _, d := range ds {
		r, err := newResource(gv, d)
		if err != nil {
			return nil, fmt.Errorf("definition %s: %w", d.Name, err)
		}
		resources = append(resources, r)
	}
	return resources, nil
}

func newResource(gv schema.GroupVersion, d *definition) (*resource, error) {
	var s spec
	if err := scheme.UnmarshalTree([]byte(d.Spec), &s); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(s.Versions, func(v specVersion) bool { return v.Name == gv.Version })
	if i < 0 {
		return nil, fmt.Errorf("there is no version %q", gv.Version)
	}
	v := &s.Versions[i]
	r := &resource{
		GroupVersionKind: gv.WithKind(s.Names.Kind), listKind: s.Names.ListKind, plural: s.Names.Plural,
		namespaced: s.Scope == "Namespaced", status: v.Subresources.Status != nil, scale: v.Subresources.Scale != nil,
		preserve: s.PreserveUnknownFields,
	}
	if r.listKind == "" {
		r.listKind = r.Kind + "List"
	}
	for _, f := range v.SelectableFields {
		r.selectableFields = append(r.selectableFields, strings.TrimPrefix(f.JSONPath, "."))
	}
	if v.Schema != nil && !d.NonStructural && len(v.Schema.OpenAPIV3Schema) > 0 {
		if err := scheme.UnmarshalTree(v.Schema.OpenAPIV3Schema, &r.schema); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// model returns the name of a definition: the labels of the group in reverse order, the version and the kind.
func (r *resource) model(kind string) string {
	parts := strings.Split(r.Group, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".") + "." + r.Version + "." + kind
}

// The names of the built-in definitions that custom resources refer to.
const (
	deleteOptionsModel = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
	listMetaModel      = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
	objectMetaModel    = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
	patchModel         = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"
	statusModel        = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
	scaleModel         = "io.k8s.api.autoscaling.v1.Scale"
)

// definitions returns the schemas of the resource and of its list, by name.
func (r *resource) definitions(d dialect) map[string]any {
	return map[string]any{
		r.model(r.Kind):     r.withExtensions(d.object(r), r.Kind),
		r.model(r.listKind): r.withExtensions(d.list(r), r.listKind),
	}
}

// withExtensions adds the kind and the selectable fields to a schema, and returns it.
func (r *resource) withExtensions(s map[string]any, kind string) map[string]any {
	s["x-kubernetes-group-version-kind"] = []any{map[string]any{"group": r.Group, "version": r.Version, "kind": kind}}
	if len(r.selectableFields) > 0 {
		fields := make([]any, len(r.selectableFields))
		for i, path := range r.selectableFields {
			fields[i] = map[string]any{"fieldPath": path}
		}
		s["x-kubernetes-selectable-fields"] = fields
	}
	return s
}

// object returns the schema of the objects.
func (d dialect) object(r *resource) map[string]any {
	preserve, _ := r.schema["x-kubernetes-preserve-unknown-fields"].(bool)
	if r.schema == nil || d == v2 && (preserve || r.preserve) {
		// If there were properties, kubectl would refuse all others.
		return map[string]any{"type": "object"}
	}
	s := d.publish(r.schema)
	if s["x-kubernetes-embedded-resource"] == true {
		return s // publish has added the properties of an object
	}
	p := properties(s)
	p["metadata"] = d.reference(objectMetaModel, partialObjectDoc("metadata"))
	p["apiVersion"] = text(typeMetaDoc("apiVersion"))
	p["kind"] = text(typeMetaDoc("kind"))
	return s
}

// list returns the schema of lists of the objects.
func (d dialect) list(r *resource) map[string]any {
	return map[string]any{
		"type":        "object",
		"description": r.listKind + " is a list of " + r.Kind,
		"required":    []any{"items"},
		"properties": map[string]any{
			"apiVersion": text(typeMetaDoc("apiVersion")),
			"kind":       text(typeMetaDoc("kind")),
			"metadata":   d.reference(listMetaModel, metav1.PartialObjectMetadataList{}.SwaggerDoc()["metadata"]),
			"items": map[string]any{
				"type":        "array",
				"description": "List of " + r.plural + ". More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md",
				"items":       map[string]any{"$ref": d.ref(r.model(r.Kind))},
			},
		},
	}
}

func text(description string) map[string]any {
	return map[string]any{"type": "string", "description": description}
}

func typeMetaDoc(field string) string { return metav1.TypeMeta{}.SwaggerDoc()[field] }

func partialObjectDoc(field string) string { return metav1.PartialObjectMetadata{}.SwaggerDoc()[field] }

// properties returns the properties of a schema, and adds an empty map if it has none.
func properties(s map[string]any) map[string]any {
	p, ok := s["properties"].(map[string]any)
	if !ok {
		p = map[string]any{}
		s["properties"] = p
	}
	return p
}
