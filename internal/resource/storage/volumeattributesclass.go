package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// volumeAttributesClass returns the kind of VolumeAttributesClasses (KEP-3751): parameters of volumes that may
// change after the provisioning. A claim changes them by the name of another class.
func volumeAttributesClass() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "storage", Resource: "volumeattributesclasses", Name: "VolumeAttributesClass",
			ShortNames: []string{"vac"},
		},
		Versions: []registry.Version{
			declare.Version[storagev1.VolumeAttributesClass]("v1", nil),
			declare.SameMessage[storagev1beta1.VolumeAttributesClass, storagev1.VolumeAttributesClass]("v1beta1", nil),
		},
		Storage: registry.Storage{Version: "v1", Path: "volumeattributesclasses"},
		Finalizers: []registry.Finalizer{
			{
				Name:    "kubernetes.io/vac-protection",
				Remover: "the VAC protection controller of kube-controller-manager", When: "when no claim or volume uses the class",
			},
		},
		Requests: registry.Requests{UnconditionalUpdate: true, ReturnDeleted: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaWhole},
		Strategy: registry.Strategy[*storagev1.VolumeAttributesClass]{
			ValidateCreate: validateVolumeAttributesClass,
			ValidateUpdate: validateVolumeAttributesClassUpdate,
		}.Untyped(),
		Table: registry.Table[*storagev1.VolumeAttributesClass]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("DriverName", "string", storagev1.VolumeAttributesClass{}.SwaggerDoc()["driverName"]),
				table.Age,
			},
			Cells: func(c *storagev1.VolumeAttributesClass) []any {
				return []any{c.Name, c.DriverName, table.AgeOf(c.CreationTimestamp)}
			},
		}.Untyped(),
	}
}
