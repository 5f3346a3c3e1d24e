package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// csiNode returns the kind of CSINodes. The kubelet creates one with the name of its node, and adds a driver to it
// when the driver registers.
func csiNode(gates features.Gates) *registry.Kind {
	disabled := declare.DisabledOf(gates, declare.Part(features.CSIVolumeHealth,
		func(n *storagev1.CSINode) bool { return len(n.Status.StorageHealth) > 0 },
		func(n *storagev1.CSINode) { n.Status.StorageHealth = nil }))
	mutable := gates.Enabled(features.MutableCSINodeAllocatableCount)
	return &registry.Kind{
		Names:    registry.Names{Group: group, Package: "storage", Resource: "csinodes", Name: "CSINode"},
		Versions: []registry.Version{declare.Version[storagev1.CSINode]("v1", nil)},
		// Objects that 1.36 stored have no status.
		Storage:      registry.Storage{Version: "v1", Path: "csinodes", DefaultOnRead: [][]int32{{3}}},
		Requests:     registry.Requests{ReturnDeleted: true},
		Subresources: []registry.Subresource{declare.Status("spec", "metadata")},
		Metadata:     registry.Metadata{OnUpdate: registry.MetaNew},
		Strategy: registry.Strategy[*storagev1.CSINode]{
			StatusKeepsMeta:     true,
			PrepareStatusUpdate: disabled.Drop,
			ValidateCreate:      validateCSINode,
			ValidateUpdate: func(n, old *storagev1.CSINode) field.ErrorList {
				return validateCSINodeUpdate(n, old, mutable)
			},
			ValidateStatusUpdate: func(n, _ *storagev1.CSINode) field.ErrorList {
				return validateStorageHealth(n.Status.StorageHealth, field.NewPath("status", "storageHealth"))
			},
		}.Untyped(),
		Table: registry.Table[*storagev1.CSINode]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Drivers", "integer", "Drivers indicates the number of CSI drivers registered on the node"),
				table.Age,
			},
			Cells: func(n *storagev1.CSINode) []any {
				return []any{n.Name, int64(len(n.Spec.Drivers)), table.AgeOf(n.CreationTimestamp)}
			},
		}.Untyped(),
	}
}
