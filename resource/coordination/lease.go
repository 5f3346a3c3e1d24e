// Package coordination declares the kinds of the coordination.k8s.io API group.
package coordination

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind { return []*registry.Kind{lease()} }

func lease() *registry.Kind {
	return &registry.Kind{
		Group: "coordination.k8s.io", Package: "coordination",
		Resource: "leases", Singular: "lease", Name: "Lease",
		AnyFinalizer: true,
		Namespaced:   true,
		Versions:     []registry.Version{declare.Version("v1", func() *coordinationv1.Lease { return &coordinationv1.Lease{} }, nil)},
		Storage:      "v1", StoragePath: "leases",
		// Coordinated leader election, and with it strategy and preferredHolder, is
		// off.
		CreateOnUpdate: true,
		Columns: []metav1.TableColumnDefinition{
			core.NameColumn,
			declare.Column("Holder", "string", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"]),
			core.AgeColumn,
		},
		Hooks: registry.HooksOf(registry.TypedHooks[*coordinationv1.Lease]{
			Spec:          func(l *coordinationv1.Lease) any { return &l.Spec },
			PrepareCreate: func(_ context.Context, l *coordinationv1.Lease) { l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil },
			PrepareUpdate: func(_ context.Context, l, old *coordinationv1.Lease) {
				if old.Spec.Strategy == nil && old.Spec.PreferredHolder == nil {
					l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil
				}
			},
			Cells: declare.Cells(func(l *coordinationv1.Lease) []any {
				holder := ""
				if h := l.Spec.HolderIdentity; h != nil {
					holder = *h
				}
				return []any{l.Name, holder, core.Age(l.CreationTimestamp)}
			}),
		}),
	}
}
