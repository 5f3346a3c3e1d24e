// Package node declares the kinds of the node.k8s.io API group.
package node

import (
	"maps"
	"slices"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind { return []*registry.Kind{runtimeClass()} }

func runtimeClass() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: "node.k8s.io", Package: "node", Resource: "runtimeclasses", Name: "RuntimeClass",
		},
		Versions: []registry.Version{declare.Version("v1", func(c *nodev1.RuntimeClass) {
			if c.Overhead != nil {
				declare.RoundUp(c.Overhead.PodFixed)
			}
		})},
		Storage:  registry.Storage{Version: "v1", Path: "runtimeclasses"},
		Requests: registry.Requests{CreateOnUpdate: true},
		Metadata: registry.Metadata{AnyFinalizer: true, OnUpdate: registry.MetaWhole},
		Strategy: registry.Strategy[*nodev1.RuntimeClass]{
			ValidateCreate: validateNewRuntimeClass,
			ValidateUpdate: validateRuntimeClassUpdate,
			Warn: func(c, _ *nodev1.RuntimeClass) []string {
				if c.Scheduling == nil {
					return nil
				}
				var warnings []string
				for _, label := range slices.Sorted(maps.Keys(c.Scheduling.NodeSelector)) {
					if text := core.DeprecatedNodeLabel(label); text != "" {
						warnings = append(warnings, "scheduling.nodeSelector: "+text)
					}
				}
				return warnings
			},
		}.Untyped(),
		Table: registry.Table[*nodev1.RuntimeClass]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Handler", "string", ""),
				table.Age,
			},
			Cells: func(c *nodev1.RuntimeClass) []any {
				return []any{c.Name, c.Handler, table.AgeOf(c.CreationTimestamp)}
			},
		}.Untyped(),
	}
}
