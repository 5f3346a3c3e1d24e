package dra

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func deviceClass() *registry.Kind {
	return &registry.Kind{
		Group: group, Package: "resource",
		Resource: "deviceclasses", Singular: "deviceclass", Name: "DeviceClass",
		MetaOnUpdate: registry.MetaWhole,
		Versions:     []registry.Version{declare.Version("v1", func() *resourcev1.DeviceClass { return &resourcev1.DeviceClass{} }, nil)},
		Storage:      "v1", StoragePath: "deviceclasses",
		UnconditionalUpdate: true, ReturnDeleted: true,
		Columns: []metav1.TableColumnDefinition{core.NameColumn, core.AgeColumn},
		Hooks: registry.HooksOf(registry.TypedHooks[*resourcev1.DeviceClass]{
			Spec:       func(c *resourcev1.DeviceClass) any { return &c.Spec },
			Generation: true,
			Cells: declare.Cells(func(c *resourcev1.DeviceClass) []any {
				return []any{c.Name, core.Age(c.CreationTimestamp)}
			}),
		}),
	}
}
