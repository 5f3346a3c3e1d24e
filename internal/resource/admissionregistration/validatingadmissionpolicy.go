package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

func validatingAdmissionPolicy() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "admissionregistration", Resource: "validatingadmissionpolicies",
			Name: "ValidatingAdmissionPolicy", Categories: categories,
		},
		Versions: []registry.Version{declare.Version("v1", func(p *admissionv1.ValidatingAdmissionPolicy) {
			declare.Pointer(&p.Spec.FailurePolicy, admissionv1.Fail)
			defaultMatch(p.Spec.MatchConstraints)
		})},
		Storage:      registry.Storage{Version: "v1", Path: "validatingadmissionpolicies"},
		Metadata:     registry.Metadata{AnyFinalizer: true, OnUpdate: registry.MetaNew},
		Subresources: []registry.Subresource{declare.Status("spec", "metadata")},
		Strategy: registry.Strategy[*admissionv1.ValidatingAdmissionPolicy]{
			Generation:      true,
			StatusKeepsMeta: true,
			ValidateCreate:  validateValidatingPolicy,
			ValidateUpdate:  validateValidatingPolicyUpdate,
			ValidateStatusUpdate: func(p, _ *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
				return validatePolicyStatus(&p.Status, field.NewPath("status"))
			},
		}.Untyped(),
		Table: registry.Table[*admissionv1.ValidatingAdmissionPolicy]{
			Columns: policyColumns("Validations",
				"Validations indicates the number of validation rules defined in this configuration"),
			Cells: func(p *admissionv1.ValidatingAdmissionPolicy) []any {
				return []any{p.Name, int64(len(p.Spec.Validations)), paramKind(p.Spec.ParamKind), table.AgeOf(p.CreationTimestamp)}
			},
		}.Untyped(),
	}
}
