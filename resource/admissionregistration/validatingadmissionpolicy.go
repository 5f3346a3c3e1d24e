package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func validatingAdmissionPolicy() *registry.Kind {
	return &registry.Kind{
		Group: group, Package: "admissionregistration",
		Resource: "validatingadmissionpolicies", Singular: "validatingadmissionpolicy", Name: "ValidatingAdmissionPolicy",
		AnyFinalizer: true,
		Categories:   categories,
		Versions: []registry.Version{declare.Version("v1", func() *admissionv1.ValidatingAdmissionPolicy { return &admissionv1.ValidatingAdmissionPolicy{} }, func(p *admissionv1.ValidatingAdmissionPolicy) {
			declare.Pointer(&p.Spec.FailurePolicy, admissionv1.Fail)
			defaultMatch(p.Spec.MatchConstraints)
		})},
		Storage: "v1", StoragePath: "validatingadmissionpolicies",
		Subresources: []registry.Subresource{declare.Status()},
		Columns:      policyColumns("Validations", "Validations indicates the number of validation rules defined in this configuration"),
		Hooks: registry.HooksOf(registry.TypedHooks[*admissionv1.ValidatingAdmissionPolicy]{
			Spec:            func(p *admissionv1.ValidatingAdmissionPolicy) any { return &p.Spec },
			Status:          func(p *admissionv1.ValidatingAdmissionPolicy) any { return &p.Status },
			StatusKeepsMeta: true,
			Generation:      true,
			Cells: declare.Cells(func(p *admissionv1.ValidatingAdmissionPolicy) []any {
				return []any{p.Name, int64(len(p.Spec.Validations)), paramKind(p.Spec.ParamKind), core.Age(p.CreationTimestamp)}
			}),
		}),
	}
}
