// Package apiextensions declares the kinds of the apiextensions.k8s.io API group.
package apiextensions

import (
	"context"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind { return []*registry.Kind{customResourceDefinition()} }

type definition = apiextensionsv1.CustomResourceDefinition

// customResourceDefinition is declared only: what a definition means and which
// ones are valid is the business of the server of custom resources.
func customResourceDefinition() *registry.Kind {
	return &registry.Kind{
		Group: "apiextensions.k8s.io", Package: "apiextensions",
		Resource: "customresourcedefinitions", Singular: "customresourcedefinition", Name: "CustomResourceDefinition",
		AnyFinalizer: true,
		ShortNames:   []string{"crd", "crds"}, Categories: []string{"api-extensions"},
		Versions: []registry.Version{declare.Version("v1", func() *definition { return &definition{} }, defaultDefinition)},
		Storage:  "v1", StorageJSON: true, StoragePath: "apiextensions.k8s.io/customresourcedefinitions",
		StoredJSON:   &registry.StoredJSON{Encode: encodeStored, Decode: decodeStored},
		Subresources: []registry.Subresource{declare.Status()},
		Hooks: registry.HooksOf(registry.TypedHooks[*definition]{
			Spec:       func(d *definition) any { return &d.Spec },
			Status:     func(d *definition) any { return &d.Status },
			Generation: true,
			PrepareCreate: func(_ context.Context, d *definition) {
				noteStoredVersion(d)
			},
			PrepareUpdate: func(_ context.Context, d, _ *definition) { noteStoredVersion(d) },
		}),
	}
}

// noteStoredVersion records that objects may be stored in the storage version
// from now on.
func noteStoredVersion(d *definition) {
	for _, v := range d.Spec.Versions {
		if v.Storage && !slices.Contains(d.Status.StoredVersions, v.Name) {
			d.Status.StoredVersions = append(slices.Clone(d.Status.StoredVersions), v.Name)
		}
	}
}

func defaultDefinition(d *definition) {
	names := &d.Spec.Names
	declare.Value(&names.Singular, strings.ToLower(names.Kind))
	if names.ListKind == "" && names.Kind != "" {
		names.ListKind = names.Kind + "List"
	}
	if d.Spec.Conversion == nil {
		d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	}
	if w := d.Spec.Conversion.Webhook; w != nil && w.ClientConfig != nil && w.ClientConfig.Service != nil {
		declare.Pointer(&w.ClientConfig.Service.Port, 443)
	}
}
