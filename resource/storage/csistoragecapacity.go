package storage

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func csiStorageCapacity() *registry.Kind {
	return &registry.Kind{
		Group: group, Package: "storage",
		Resource: "csistoragecapacities", Singular: "csistoragecapacity", Name: "CSIStorageCapacity",
		MetaOnUpdate: registry.MetaWhole,
		Namespaced:   true,
		Versions:     []registry.Version{declare.Version("v1", func() *storagev1.CSIStorageCapacity { return &storagev1.CSIStorageCapacity{} }, nil)},
		Storage:      "v1", StoragePath: "csistoragecapacities",
		Hooks: registry.HooksOf(registry.TypedHooks[*storagev1.CSIStorageCapacity]{
			ValidateUpdate: func(_ context.Context, c, old *storagev1.CSIStorageCapacity) field.ErrorList {
				errs := declare.Immutable(c.NodeTopology, old.NodeTopology, field.NewPath("nodeTopology"))
				return append(errs, declare.Immutable(c.StorageClassName, old.StorageClassName, field.NewPath("storageClassName"))...)
			},
		}),
	}
}
