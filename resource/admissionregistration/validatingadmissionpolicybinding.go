package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func validatingAdmissionPolicyBinding() *registry.Kind {
	return &registry.Kind{
		Group: group, Package: "admissionregistration",
		Resource: "validatingadmissionpolicybindings", Singular: "validatingadmissionpolicybinding", Name: "ValidatingAdmissionPolicyBinding",
		AnyFinalizer: true,
		Categories:   categories,
		Versions: []registry.Version{declare.Version("v1", func() *admissionv1.ValidatingAdmissionPolicyBinding {
			return &admissionv1.ValidatingAdmissionPolicyBinding{}
		}, func(b *admissionv1.ValidatingAdmissionPolicyBinding) {
			defaultMatch(b.Spec.MatchResources)
		})},
		Storage: "v1", StoragePath: "validatingadmissionpolicybindings",
		Columns: bindingColumns(),
		Hooks: registry.HooksOf(registry.TypedHooks[*admissionv1.ValidatingAdmissionPolicyBinding]{
			Spec:       func(b *admissionv1.ValidatingAdmissionPolicyBinding) any { return &b.Spec },
			Generation: true,
			Cells: declare.Cells(func(b *admissionv1.ValidatingAdmissionPolicyBinding) []any {
				return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), core.Age(b.CreationTimestamp)}
			}),
		}),
	}
}
