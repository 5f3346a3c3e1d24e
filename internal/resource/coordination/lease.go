// Package coordination declares the kinds of the coordination.k8s.io API group.
package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// Kinds returns the kinds of the group in the order of discovery.
func Kinds(gates features.Gates) []*registry.Kind {
	return []*registry.Kind{leaseCandidate(), lease(gates)}
}

func lease(gates features.Gates) *registry.Kind {
	// With the gate off, the two fields are dropped from a write and not refused, so that a client of a newer
	// version can still renew its Lease. An update keeps a field that the stored Lease has.
	disabled := declare.DisabledOf(gates,
		declare.Part(features.CoordinatedLeaderElection,
			func(l *coordinationv1.Lease) bool { return l.Spec.Strategy != nil },
			func(l *coordinationv1.Lease) { l.Spec.Strategy = nil }),
		declare.Part(features.CoordinatedLeaderElection,
			func(l *coordinationv1.Lease) bool { return l.Spec.PreferredHolder != nil },
			func(l *coordinationv1.Lease) { l.Spec.PreferredHolder = nil }))
	return &registry.Kind{
		Names: registry.Names{
			Group: "coordination.k8s.io", Package: "coordination", Resource: "leases", Name: "Lease",
			Namespaced: true,
		},
		Versions: []registry.Version{declare.Version[coordinationv1.Lease]("v1", nil)},
		Storage:  registry.Storage{Version: "v1", Path: "leases"},
		Requests: registry.Requests{CreateOnUpdate: true},
		Metadata: registry.Metadata{AnyFinalizer: true},
		Strategy: registry.Strategy[*coordinationv1.Lease]{
			PrepareCreate: disabled.DropNew,
			PrepareUpdate: disabled.Drop,
			Validate:      validateLease,
		}.Untyped(),
		Table: registry.Table[*coordinationv1.Lease]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Holder", "string", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"]),
				table.Age,
			},
			Cells: func(l *coordinationv1.Lease) []any {
				return []any{l.Name, ptr.Deref(l.Spec.HolderIdentity, ""), table.AgeOf(l.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

// validateLease validates the numbers of a Lease and how its holder is elected.
func validateLease(l *coordinationv1.Lease) field.ErrorList {
	spec := field.NewPath("spec")
	errs := field.AtLeast(spec.Child("leaseDurationSeconds"), l.Spec.LeaseDurationSeconds, 1, "must be greater than 0")
	// 0 is valid: the first holder has not taken the Lease from anybody.
	errs = append(errs, field.AtLeast(spec.Child("leaseTransitions"), l.Spec.LeaseTransitions, 0,
		"must be greater than or equal to 0")...)
	// Most Leases have neither a strategy nor a preferred holder. Nodes renew theirs often: no path is made for these fields.
	strategy := l.Spec.Strategy
	if strategy != nil {
		errs = append(errs, validateStrategy(spec.Child("strategy"), *strategy)...)
	}
	if ptr.Deref(l.Spec.PreferredHolder, "") != "" && ptr.Deref(strategy, "") == "" {
		errs = append(errs, field.Forbidden(spec.Child("preferredHolder"), "may only be specified if `strategy` is defined"))
	}
	return errs
}
