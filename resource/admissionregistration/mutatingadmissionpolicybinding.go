package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func mutatingAdmissionPolicyBinding() *registry.Kind {
	return &registry.Kind{
		Group: group, Package: "admissionregistration",
		Resource: "mutatingadmissionpolicybindings", Singular: "mutatingadmissionpolicybinding", Name: "MutatingAdmissionPolicyBinding",
		AnyFinalizer: true,
		Categories:   categories,
		Versions: []registry.Version{declare.Version("v1", func() *admissionv1.MutatingAdmissionPolicyBinding {
			return &admissionv1.MutatingAdmissionPolicyBinding{}
		}, func(b *admissionv1.MutatingAdmissionPolicyBinding) {
			defaultMatch(b.Spec.MatchResources)
		})},
		Storage: "v1", StoragePath: "mutatingadmissionpolicybindings", StorageGroupVersion: group + "/v1beta1",
		Columns: bindingColumns(),
		Hooks: registry.HooksOf(registry.TypedHooks[*admissionv1.MutatingAdmissionPolicyBinding]{
			Spec:       func(b *admissionv1.MutatingAdmissionPolicyBinding) any { return &b.Spec },
			Generation: true,
			Cells: declare.Cells(func(b *admissionv1.MutatingAdmissionPolicyBinding) []any {
				return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), core.Age(b.CreationTimestamp)}
			}),
		}),
	}
}
