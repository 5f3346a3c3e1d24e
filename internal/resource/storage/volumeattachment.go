package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// volumeAttachment returns the kind of VolumeAttachments. The attach-detach controller creates one to ask for a
// volume on a node. The external-attacher of the driver attaches the volume and writes the status.
func volumeAttachment(gates features.Gates) *registry.Kind {
	disabled := disabledInVolumeAttachment(gates)
	spec, source := storagev1.VolumeAttachmentSpec{}.SwaggerDoc(), storagev1.VolumeAttachmentSource{}.SwaggerDoc()
	attacher := table.Column("Attacher", "string", spec["attacher"])
	attacher.Format = "name"
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "storage", Resource: "volumeattachments", Name: "VolumeAttachment",
		},
		Versions: []registry.Version{declare.Version[storagev1.VolumeAttachment]("v1", defaultVolumeAttachment)},
		Storage:  registry.Storage{Version: "v1", Path: "volumeattachments"},
		Requests: registry.Requests{ReturnDeleted: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaNew, OnStatusUpdate: registry.MetaNew},
		Finalizers: []registry.Finalizer{
			{
				Name:    "external-attacher/",
				Remover: "the external-attacher of the CSI driver", When: "when the volume is detached from its nodes",
			},
		},
		Subresources: []registry.Subresource{declare.Status("spec", "metadata")},
		Strategy: registry.Strategy[*storagev1.VolumeAttachment]{
			StatusKeepsMeta:      true,
			PrepareStatusUpdate:  disabled.Drop,
			ValidateCreate:       validateNewVolumeAttachment,
			ValidateUpdate:       validateVolumeAttachmentUpdate,
			ValidateStatusUpdate: validateVolumeAttachmentUpdate,
		}.Untyped(),
		Table: registry.Table[*storagev1.VolumeAttachment]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				attacher,
				table.Column("PV", "string", source["persistentVolumeName"]),
				table.Column("Node", "string", spec["nodeName"]),
				table.Column("Attached", "boolean", storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"]),
				table.Age,
			},
			Cells: func(a *storagev1.VolumeAttachment) []any {
				return []any{a.Name, a.Spec.Attacher, ptr.Deref(a.Spec.Source.PersistentVolumeName, ""), a.Spec.NodeName,
					a.Status.Attached, table.AgeOf(a.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

// defaultVolumeAttachment sets the defaults of the source of an inline volume. The rest of its
// spec has no defaults.
func defaultVolumeAttachment(a *storagev1.VolumeAttachment) {
	if inline := a.Spec.Source.InlineVolumeSpec; inline != nil {
		core.DefaultPersistentVolumeSource(inline)
	}
}

// disabledInVolumeAttachment returns the gate of the codes in errors, which are gRPC codes. With the gate, the
// kubelet reads from the code that a node can attach no more volumes, and updates the number in CSINode.
func disabledInVolumeAttachment(gates features.Gates) declare.Disabled[*storagev1.VolumeAttachment] {
	code := func(get func(*storagev1.VolumeAttachmentStatus) *storagev1.VolumeError) declare.Gated[*storagev1.VolumeAttachment] {
		return declare.Part(features.MutableCSINodeAllocatableCount,
			func(a *storagev1.VolumeAttachment) bool { e := get(&a.Status); return e != nil && e.ErrorCode != nil },
			func(a *storagev1.VolumeAttachment) {
				if e := get(&a.Status); e != nil {
					e.ErrorCode = nil
				}
			})
	}
	return declare.DisabledOf(gates,
		code(func(s *storagev1.VolumeAttachmentStatus) *storagev1.VolumeError { return s.AttachError }),
		code(func(s *storagev1.VolumeAttachmentStatus) *storagev1.VolumeError { return s.DetachError }))
}
