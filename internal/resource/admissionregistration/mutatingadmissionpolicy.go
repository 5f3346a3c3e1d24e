package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

func mutatingAdmissionPolicy() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "admissionregistration", Resource: "mutatingadmissionpolicies",
			Name: "MutatingAdmissionPolicy", Categories: categories,
		},
		Versions: []registry.Version{
			declare.Version("v1", defaultMutatingPolicy),
			declare.SameMessage[admissionv1beta1.MutatingAdmissionPolicy]("v1beta1", defaultMutatingPolicy),
			declare.SameMessage[admissionv1alpha1.MutatingAdmissionPolicy]("v1alpha1", defaultMutatingPolicy),
		},
		Storage:  registry.Storage{Version: "v1", Path: "mutatingadmissionpolicies"},
		Metadata: registry.Metadata{AnyFinalizer: true, OnUpdate: registry.MetaNew},
		Strategy: registry.Strategy[*admissionv1.MutatingAdmissionPolicy]{
			Generation:     true,
			ValidateCreate: validateMutatingPolicy,
			ValidateUpdate: validateMutatingPolicyUpdate,
		}.Untyped(),
		Table: registry.Table[*admissionv1.MutatingAdmissionPolicy]{
			Columns: policyColumns("Mutations",
				"Mutation indicates the number of mutations rules defined in this configuration"),
			Cells: func(p *admissionv1.MutatingAdmissionPolicy) []any {
				return []any{p.Name, int64(len(p.Spec.Mutations)), paramKind(p.Spec.ParamKind), table.AgeOf(p.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

func defaultMutatingPolicy(p *admissionv1.MutatingAdmissionPolicy) {
	declare.Pointer(&p.Spec.FailurePolicy, admissionv1.Fail)
	defaultMatch(p.Spec.MatchConstraints)
}
