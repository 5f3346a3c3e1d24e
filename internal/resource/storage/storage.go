// Package storage declares the kinds of the storage.k8s.io API group.
package storage

import (
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

const group = "storage.k8s.io"

// Kinds returns the kinds of the group in the order of discovery.
func Kinds(gates features.Gates) []*registry.Kind {
	return []*registry.Kind{csiDriver(gates), csiNode(gates), csiStorageCapacity(), storageClass(), volumeAttachment(gates),
		volumeAttributesClass()}
}
