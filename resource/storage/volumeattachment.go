package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func volumeAttachment() *registry.Kind {
	spec, source := storagev1.VolumeAttachmentSpec{}.SwaggerDoc(), storagev1.VolumeAttachmentSource{}.SwaggerDoc()
	attacher := declare.Column("Attacher", "string", spec["attacher"])
	attacher.Format = "name"
	return &registry.Kind{
		Group: group, Package: "storage",
		Resource: "volumeattachments", Singular: "volumeattachment", Name: "VolumeAttachment",
		Versions: []registry.Version{declare.Version("v1", func() *storagev1.VolumeAttachment { return &storagev1.VolumeAttachment{} }, nil)},
		Storage:  "v1", StoragePath: "volumeattachments",
		ReturnDeleted: true,
		Subresources:  []registry.Subresource{declare.Status()},
		Columns: []metav1.TableColumnDefinition{
			core.NameColumn,
			attacher,
			declare.Column("PV", "string", source["persistentVolumeName"]),
			declare.Column("Node", "string", spec["nodeName"]),
			declare.Column("Attached", "boolean", storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"]),
			core.AgeColumn,
		},
		Hooks: registry.HooksOf(registry.TypedHooks[*storagev1.VolumeAttachment]{
			Spec:            func(a *storagev1.VolumeAttachment) any { return &a.Spec },
			Status:          func(a *storagev1.VolumeAttachment) any { return &a.Status },
			StatusKeepsMeta: true,
			Cells: declare.Cells(func(a *storagev1.VolumeAttachment) []any {
				volume := ""
				if name := a.Spec.Source.PersistentVolumeName; name != nil {
					volume = *name
				}
				return []any{a.Name, a.Spec.Attacher, volume, a.Spec.NodeName, a.Status.Attached, core.Age(a.CreationTimestamp)}
			}),
		}),
	}
}
