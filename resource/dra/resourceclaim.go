package dra

import (
	"context"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func resourceClaim() *registry.Kind {
	return &registry.Kind{
		Group: group, Package: "resource",
		Resource: "resourceclaims", Singular: "resourceclaim", Name: "ResourceClaim",
		MetaOnUpdate: registry.MetaWhole,
		Namespaced:   true,
		Versions: []registry.Version{declare.Version("v1", func() *resourcev1.ResourceClaim { return &resourcev1.ResourceClaim{} }, func(c *resourcev1.ResourceClaim) {
			defaultClaimSpec(&c.Spec)
			if a := c.Status.Allocation; a != nil {
				for i := range a.Devices.Results {
					defaultTolerations(a.Devices.Results[i].Tolerations)
				}
			}
		})},
		Storage: "v1", StoragePath: "resourceclaims",
		UnconditionalUpdate: true, ReturnDeleted: true,
		Subresources: []registry.Subresource{declare.Status()},
		Columns: []metav1.TableColumnDefinition{
			core.NameColumn,
			declare.Column("State", "string", "A summary of the current state (allocated, pending, reserved, etc.)."),
			core.AgeColumn,
		},
		Hooks: registry.HooksOf(registry.TypedHooks[*resourcev1.ResourceClaim]{
			Spec:            func(c *resourcev1.ResourceClaim) any { return &c.Spec },
			Status:          func(c *resourcev1.ResourceClaim) any { return &c.Status },
			StatusKeepsMeta: true,
			ValidateUpdate: func(_ context.Context, c, old *resourcev1.ResourceClaim) field.ErrorList {
				return declare.Immutable(c.Spec, old.Spec, field.NewPath("spec"))
			},
			Cells: declare.Cells(func(c *resourcev1.ResourceClaim) []any {
				return []any{c.Name, claimState(c), core.Age(c.CreationTimestamp)}
			}),
		}),
	}
}

func claimState(c *resourcev1.ResourceClaim) string {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	switch {
	case c.Status.Allocation != nil:
		states = append(states, "allocated")
		if len(c.Status.ReservedFor) > 0 {
			states = append(states, "reserved")
		}
	case c.DeletionTimestamp == nil:
		states = append(states, "pending")
	}
	return strings.Join(states, ",")
}
