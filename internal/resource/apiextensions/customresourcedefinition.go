// Package apiextensions declares the kinds of the API group apiextensions.k8s.io. It
// validates CustomResourceDefinitions, sets their defaults and encodes them for storage.
// Package crd serves the resources that they define.
package apiextensions

import (
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind { return []*registry.Kind{customResourceDefinition()} }

type (
	definition     = apiextensionsv1.CustomResourceDefinition
	definitionSpec = apiextensionsv1.CustomResourceDefinitionSpec
	version        = apiextensionsv1.CustomResourceDefinitionVersion
	// props is a schema in a definition.
	props = apiextensionsv1.JSONSchemaProps
)

// webhookPort is the default port of a conversion webhook's Service.
const webhookPort = 443

func customResourceDefinition() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: "apiextensions.k8s.io", Package: "apiextensions", Resource: "customresourcedefinitions",
			Name: "CustomResourceDefinition", ShortNames: []string{"crd", "crds"},
			Categories: []string{"api-extensions"},
		},
		Versions: []registry.Version{servedVersion()},
		Storage: registry.Storage{
			Version: "v1", Path: "apiextensions.k8s.io/customresourcedefinitions", JSON: true, GroupVersion: storedAPIVersion,
			StoredJSON: &registry.StoredJSON{Encode: encodeStored, Decode: decodeStored},
		},
		Metadata: registry.Metadata{AnyFinalizer: true, Repeated: true},
		Finalizers: []registry.Finalizer{
			{
				Name:    "customresourcecleanup.apiextensions.k8s.io",
				Remover: "the API server", When: "when the custom resources of the definition are deleted",
			},
		},
		Subresources: []registry.Subresource{declare.Status()},
		Strategy: registry.Strategy[*definition]{
			Generation:           true,
			PrepareCreate:        recordStoredVersion,
			PrepareUpdate:        func(d, _ *definition) { recordStoredVersion(d) },
			ValidateStatusUpdate: validateStatusUpdate,
			Canonicalize:         func(d *definition) { rewriteValues(d, canonical) },
			Warn: func(d, old *definition) []string {
				return slices.Concat(newWarnings(unrecognizedFormats, d, old), newWarnings(unsupportedSets, d, old),
					newWarnings(unreadableColumns, d, old))
			},
			InContext: registry.InContext[*definition]{ValidateCreate: validate, ValidateUpdate: validateUpdate},
		}.Untyped(),
		Deletion: registry.Deletion[*definition]{Started: startDeletion, IgnoresPropagation: true}.Untyped(),
		Table: registry.Table[*definition]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Scope", "string", "Cluster/Namespaced"),
				table.Column("Versions", "string", "Served versions"),
				table.Column("Created At", "date", table.Age.Description),
				table.Wide("Group", "string", "API group"),
				table.Wide("Kind", "string", "CustomResource kind"),
				table.Wide("ShortNames", "string", "Short names"),
				table.Wide("Established", "boolean", "Established status"),
			},
			Cells: func(d *definition) []any {
				return []any{
					d.Name, string(d.Spec.Scope), servedVersions(&d.Spec), d.CreationTimestamp.UTC().Format(time.RFC3339),
					d.Spec.Group, d.Spec.Names.Kind, strings.Join(d.Spec.Names.ShortNames, ","), established(d),
				}
			},
		}.Untyped(),
	}
}

// servedVersions returns the names of the served versions as a table shows them.
func servedVersions(spec *definitionSpec) string {
	var names []string
	for _, v := range spec.Versions {
		switch {
		case v.Served && v.Storage:
			names = append(names, v.Name+"(storage)")
		case v.Served:
			names = append(names, v.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// established reports whether the custom resources are served.
func established(d *definition) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// servedVersion returns v1. Values in its schemas that are valid JSON and cannot be decoded, such as a number of
// 400 digits, are refused when the request is decoded, before defaults and validation use them.
func servedVersion() registry.Version {
	v := declare.Version[definition]("v1", defaultDefinition)
	v.Coerce = func(obj registry.Object, _ bool) ([]string, error) {
		return nil, checkValuesReadable(obj.(*definition))
	}
	return v
}

// recordStoredVersion adds the storage version to status.storedVersions.
// It runs before validation, which requires the storage version in the list. A name is only added here: the
// migration of storage versions removes it when no object of that version is left.
func recordStoredVersion(d *definition) {
	name := storageVersion(&d.Spec)
	if name != nil && !slices.Contains(d.Status.StoredVersions, *name) {
		d.Status.StoredVersions = append(slices.Clone(d.Status.StoredVersions), *name)
	}
}

// storageVersion returns the name of the first storage version, nil if there is none.
func storageVersion(spec *definitionSpec) *string {
	i := slices.IndexFunc(spec.Versions, func(v version) bool { return v.Storage })
	if i < 0 {
		return nil
	}
	return &spec.Versions[i].Name
}

func defaultDefinition(d *definition) {
	defaultNames(&d.Spec.Names)
	if d.Spec.Conversion == nil {
		d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	}
	if w := d.Spec.Conversion.Webhook; w != nil {
		switch {
		case w.ClientConfig == nil && w.ConversionReviewVersions == nil:
			// kube-apiserver's internal version cannot hold an empty webhook.
			d.Spec.Conversion.Webhook = nil
		case w.ClientConfig != nil && w.ClientConfig.Service != nil:
			declare.Pointer(&w.ClientConfig.Service.Port, webhookPort)
		}
	}
	if name := storageVersion(&d.Spec); name != nil && len(d.Status.StoredVersions) == 0 {
		d.Status.StoredVersions = []string{*name}
	}
	rewriteValues(d, canonicalUnlessInteger)
}

// defaultNames sets the names that follow from the kind. The controller of definitions later copies the names
// that no other definition uses into status.acceptedNames.
func defaultNames(names *apiextensionsv1.CustomResourceDefinitionNames) {
	declare.Value(&names.Singular, strings.ToLower(names.Kind))
	if names.ListKind == "" && names.Kind != "" {
		names.ListKind = names.Kind + "List"
	}
}
