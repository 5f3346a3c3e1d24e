package storage

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// csiStorageCapacity returns the kind of CSIStorageCapacities (KEP-1472). The external-provisioner of a driver
// creates one for each pair of a class and a topology; the scheduler compares it with the sizes of claims.
func csiStorageCapacity() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "storage", Resource: "csistoragecapacities", Name: "CSIStorageCapacity",
			Namespaced: true,
		},
		Versions: []registry.Version{declare.Version[storagev1.CSIStorageCapacity]("v1", nil)},
		Storage:  registry.Storage{Version: "v1", Path: "csistoragecapacities"},
		Metadata: registry.Metadata{OnUpdate: registry.MetaWhole},
		Strategy: registry.Strategy[*storagev1.CSIStorageCapacity]{
			ValidateCreate: func(c *storagev1.CSIStorageCapacity) field.ErrorList {
				return validateCSIStorageCapacity(c, false)
			},
			ValidateUpdate: validateCSIStorageCapacityUpdate,
		}.Untyped(),
	}
}
