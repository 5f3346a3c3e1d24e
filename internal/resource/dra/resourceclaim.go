package dra

import (
	"context"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// resourceClaim returns the kind of ResourceClaims. The scheduler writes the allocation and the reservations to
// the status, and drivers write the statuses of devices.
func resourceClaim(gates features.Gates) *registry.Kind {
	inSpec, inStatus := disabledInSpec(gates), disabledInClaimStatus(gates)
	granular := gates.Enabled(features.DRAResourceClaimGranularStatusAuthorization)
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "resource", Resource: "resourceclaims", Name: "ResourceClaim", Namespaced: true,
		},
		Versions: []registry.Version{
			declare.Version("v1", defaultClaim),
			declare.SameMessage[resourcev1beta2.ResourceClaim]("v1beta2", defaultClaim),
			v1beta1Claim(),
		},
		Storage:  registry.Storage{Version: "v1", Path: "resourceclaims"},
		Requests: registry.Requests{UnconditionalUpdate: true, ReturnDeleted: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaWhole},
		Finalizers: []registry.Finalizer{
			{
				Name:    "resource.kubernetes.io/delete-protection",
				Remover: "the resource claim controller of kube-controller-manager", When: "when the claim is not reserved or allocated any more",
			},
		},
		Subresources: []registry.Subresource{declare.Status("spec", "metadata")},
		Strategy: registry.Strategy[*resourcev1.ResourceClaim]{
			StatusKeepsMeta: true,
			PrepareCreate:   func(c *resourcev1.ResourceClaim) { inSpec.DropNew(&c.Spec) },
			PrepareUpdate:   func(c, old *resourcev1.ResourceClaim) { inSpec.Drop(&c.Spec, &old.Spec) },
			PrepareStatusUpdate: func(c, old *resourcev1.ResourceClaim) {
				inStatus.Drop(c, old)
				dropDeallocated(&c.Status, &old.Status)
			},
			InContext: registry.InContext[*resourcev1.ResourceClaim]{
				ValidateCreate: func(ctx context.Context, c, _ *resourcev1.ResourceClaim) field.ErrorList {
					d := newDeclared(ctx, false)
					d.claim(c, nil)
					return d.after(validateClaimSpec(&c.Spec, gates, field.NewPath("spec")))
				},
				ValidateUpdate: func(ctx context.Context, c, old *resourcev1.ResourceClaim) field.ErrorList {
					d := newDeclared(ctx, true)
					d.claim(c, old)
					return d.after(nil) // the spec cannot change
				},
				ValidateStatusUpdate: func(ctx context.Context, c, old *resourcev1.ResourceClaim) field.ErrorList {
					d := newDeclared(ctx, true)
					d.claim(c, old)
					return d.after(validateClaimStatus(c, old))
				},
			},
			ValidateNamespace: func(c, old *resourcev1.ResourceClaim, labels func() (map[string]string, error)) field.ErrorList {
				if old == nil {
					return validateAdminRequests(c.Spec.Devices.Requests, labels)
				}
				return validateAdminResults(&c.Status, &old.Status, labels)
			},
			ValidatePermissions: func(
				ctx context.Context, c, old *resourcev1.ResourceClaim, check func(*request.Info) error,
			) field.ErrorList {
				if !granular {
					return nil
				}
				return validateStatusPermissions(ctx, c, old, check)
			},
		}.Untyped(),
		Table: registry.Table[*resourcev1.ResourceClaim]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("State", "string", "A summary of the current state (allocated, pending, reserved, etc.)."),
				table.Age,
			},
			Cells: func(c *resourcev1.ResourceClaim) []any {
				return []any{c.Name, claimState(c), table.AgeOf(c.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

// claimState returns, for example, "allocated,reserved" or "deleted,allocated". A deleted claim is never pending,
// because nothing will be allocated to it.
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

func defaultClaim(c *resourcev1.ResourceClaim) {
	defaultClaimSpec(&c.Spec)
	if a := c.Status.Allocation; a != nil {
		for i := range a.Devices.Results {
			defaultTolerations(a.Devices.Results[i].Tolerations)
		}
	}
}
