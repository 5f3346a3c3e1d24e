package storage

import (
	storagev1 "k8s.io/api/storage/v1"

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
	}
}
