package dra

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// resourceClaimTemplate returns the kind of ResourceClaimTemplates. The spec cannot change, so that all claims
// that a controller makes of it for the pods of a workload are the same.
func resourceClaimTemplate(gates features.Gates) *registry.Kind {
	disabled := disabledInSpec(gates)
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "resource", Resource: "resourceclaimtemplates", Name: "ResourceClaimTemplate",
			Namespaced: true,
		},
		Versions: []registry.Version{
			declare.Version("v1", defaultTemplate),
			declare.SameMessage[resourcev1beta2.ResourceClaimTemplate]("v1beta2", defaultTemplate),
			v1beta1Template(),
		},
		Storage:  registry.Storage{Version: "v1", Path: "resourceclaimtemplates"},
		Requests: registry.Requests{UnconditionalUpdate: true, ReturnDeleted: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaWhole},
		Strategy: registry.Strategy[*resourcev1.ResourceClaimTemplate]{
			PrepareCreate: func(t *resourcev1.ResourceClaimTemplate) { disabled.DropNew(&t.Spec.Spec) },
			PrepareUpdate: func(t, old *resourcev1.ResourceClaimTemplate) {
				disabled.Drop(&t.Spec.Spec, &old.Spec.Spec)
			},
			InContext: registry.InContext[*resourcev1.ResourceClaimTemplate]{
				ValidateCreate: func(ctx context.Context, t, _ *resourcev1.ResourceClaimTemplate) field.ErrorList {
					path, d := field.NewPath("spec"), newDeclared(ctx, false)
					d.deviceClaim(&t.Spec.Spec.Devices, nil, path.Child("spec", "devices"))
					return d.after(validateTemplateSpec(&t.Spec, gates, path))
				},
				ValidateUpdate: func(ctx context.Context, t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
					path, d := field.NewPath("spec"), newDeclared(ctx, true)
					d.deviceClaim(&t.Spec.Spec.Devices, &old.Spec.Spec.Devices, path.Child("spec", "devices"))
					errs := validateTemplateSpec(&t.Spec, gates, path)
					return d.after(append(errs, declare.Immutable(t.Spec, old.Spec, path)...))
				},
			},
			ValidateNamespace: func(
				t, old *resourcev1.ResourceClaimTemplate, labels func() (map[string]string, error),
			) field.ErrorList {
				if old != nil { // requests cannot change
					return nil
				}
				return validateAdminRequests(t.Spec.Spec.Devices.Requests, labels)
			},
		}.Untyped(),
		Table: table.NameAndAge(),
	}
}

// validateTemplateSpec validates what claims are made of, also if an update keeps it.
func validateTemplateSpec(s *resourcev1.ResourceClaimTemplateSpec, gates features.Gates, path *field.Path) field.ErrorList {
	errs := core.ValidateTemplateMetadata(&s.ObjectMeta, path.Child("metadata"))
	return append(errs, validateClaimSpec(&s.Spec, gates, path.Child("spec"))...)
}

func defaultTemplate(t *resourcev1.ResourceClaimTemplate) {
	defaultClaimSpec(&t.Spec.Spec)
}
