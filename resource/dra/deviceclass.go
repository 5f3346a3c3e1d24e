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
		Names: registry.Names{
			Group: group, Package: "resource", Resource: "deviceclasses", Singular: "deviceclass",
			Name: "DeviceClass",
		},
		Versions: []registry.Version{declare.Version[resourcev1.DeviceClass]("v1", nil)},
		Storage:  registry.Storage{Version: "v1", Path: "deviceclasses"},
		Requests: registry.Requests{UnconditionalUpdate: true, ReturnDeleted: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaWhole},
		Strategy: registry.Strategy[*resourcev1.DeviceClass]{
			Spec:       func(c *resourcev1.DeviceClass) any { return &c.Spec },
			Generation: true,
		}.Untyped(),
		Table: registry.Table[*resourcev1.DeviceClass]{
			Columns: []metav1.TableColumnDefinition{core.NameColumn, core.AgeColumn},
			Cells: declare.Cells(func(c *resourcev1.DeviceClass) []any {
				return []any{c.Name, core.Age(c.CreationTimestamp)}
			}),
		}.Untyped(),
	}
}
