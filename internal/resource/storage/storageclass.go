package storage

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// The annotations that mark the default class.
// The beta annotation is from before 1.6. Clients may still use it.
const (
	defaultClassAnnotation     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultClassAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

// storageClass returns the kind of StorageClasses. They have no spec: the fields are at the top level of the
// object.
func storageClass() *registry.Kind {
	doc := storagev1.StorageClass{}.SwaggerDoc()
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "storage", Resource: "storageclasses", Name: "StorageClass",
			ShortNames: []string{"sc"},
		},
		Versions: []registry.Version{declare.Version("v1", func(c *storagev1.StorageClass) {
			declare.Pointer(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
			declare.Pointer(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
		})},
		Storage:  registry.Storage{Version: "v1", Path: "storageclasses"},
		Requests: registry.Requests{UnconditionalUpdate: true, ReturnDeleted: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaWhole},
		Strategy: registry.Strategy[*storagev1.StorageClass]{
			ValidateCreate: validateStorageClass,
			ValidateUpdate: validateStorageClassUpdate,
			Warn: func(c, _ *storagev1.StorageClass) []string {
				var warnings []string
				for i, term := range c.AllowedTopologies {
					for k, e := range term.MatchLabelExpressions {
						if text := core.DeprecatedNodeLabel(e.Key); text != "" {
							warnings = append(warnings, fmt.Sprintf("allowedTopologies[%d].matchLabelExpressions[%d].key: %s", i, k, text))
						}
					}
				}
				return warnings
			},
		}.Untyped(),
		Table: registry.Table[*storagev1.StorageClass]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Provisioner", "string", doc["provisioner"]),
				table.Column("ReclaimPolicy", "string", doc["reclaimPolicy"]),
				table.Column("VolumeBindingMode", "string", doc["volumeBindingMode"]),
				table.Column("AllowVolumeExpansion", "string", doc["allowVolumeExpansion"]),
				table.Age,
			},
			Cells: storageClassCells,
			ListCells: func(all []*storagev1.StorageClass) func(*storagev1.StorageClass) []any {
				effective := effectiveDefault(all)
				return func(c *storagev1.StorageClass) []any {
					cells := storageClassCells(c)
					if c == effective {
						cells[0] = c.Name + " (default)"
					}
					return cells
				}
			},
		}.Untyped(),
	}
}

// storageClassCells returns the cells of a class. Which class is the default is only shown in a list, because the other classes
// decide it too.
func storageClassCells(c *storagev1.StorageClass) []any {
	return []any{c.Name, c.Provisioner, string(ptr.Deref(c.ReclaimPolicy, table.None)),
		string(ptr.Deref(c.VolumeBindingMode, table.None)), ptr.Deref(c.AllowVolumeExpansion, false),
		table.AgeOf(c.CreationTimestamp)}
}

// effectiveDefault returns which of the classes is the default: of those that are marked as such, the newest, and of several
// newest the first by name. It returns nil if none is marked.
func effectiveDefault(all []*storagev1.StorageClass) *storagev1.StorageClass {
	var chosen *storagev1.StorageClass
	for _, c := range all {
		if c.Annotations[defaultClassAnnotation] != "true" && c.Annotations[betaDefaultClassAnnotation] != "true" {
			continue
		}
		if chosen == nil || c.CreationTimestamp.After(chosen.CreationTimestamp.Time) ||
			c.CreationTimestamp.Equal(&chosen.CreationTimestamp) && c.Name < chosen.Name {
			chosen = c
		}
	}
	return chosen
}
