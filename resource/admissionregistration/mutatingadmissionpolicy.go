package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func mutatingAdmissionPolicy() *registry.Kind {
	return &registry.Kind{
		Group: group, Package: "admissionregistration",
		Resource: "mutatingadmissionpolicies", Singular: "mutatingadmissionpolicy", Name: "MutatingAdmissionPolicy",
		AnyFinalizer: true,
		Categories:   categories,
		Versions: []registry.Version{declare.Version("v1", func() *admissionv1.MutatingAdmissionPolicy { return &admissionv1.MutatingAdmissionPolicy{} }, func(p *admissionv1.MutatingAdmissionPolicy) {
			declare.Pointer(&p.Spec.FailurePolicy, admissionv1.Fail)
			defaultMatch(p.Spec.MatchConstraints)
		})},
		Storage: "v1", StoragePath: "mutatingadmissionpolicies", StorageGroupVersion: group + "/v1beta1",
		Columns: policyColumns("Mutations", "Mutation indicates the number of mutations rules defined in this configuration"),
		Hooks: registry.HooksOf(registry.TypedHooks[*admissionv1.MutatingAdmissionPolicy]{
			Spec:       func(p *admissionv1.MutatingAdmissionPolicy) any { return &p.Spec },
			Generation: true,
			Cells: declare.Cells(func(p *admissionv1.MutatingAdmissionPolicy) []any {
				return []any{p.Name, int64(len(p.Spec.Mutations)), paramKind(p.Spec.ParamKind), core.Age(p.CreationTimestamp)}
			}),
		}),
	}
}
