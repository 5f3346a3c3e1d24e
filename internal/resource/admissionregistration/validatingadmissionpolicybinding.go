package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

func validatingAdmissionPolicyBinding() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "admissionregistration", Resource: "validatingadmissionpolicybindings",
			Name: "ValidatingAdmissionPolicyBinding", Categories: categories,
		},
		Versions: []registry.Version{declare.Version("v1", func(b *admissionv1.ValidatingAdmissionPolicyBinding) {
			defaultMatch(b.Spec.MatchResources)
		})},
		Storage:  registry.Storage{Version: "v1", Path: "validatingadmissionpolicybindings"},
		Metadata: registry.Metadata{AnyFinalizer: true, OnUpdate: registry.MetaNew},
		Strategy: registry.Strategy[*admissionv1.ValidatingAdmissionPolicyBinding]{
			Generation: true,
			Validate:   validateValidatingBinding,
		}.Untyped(),
		Table: registry.Table[*admissionv1.ValidatingAdmissionPolicyBinding]{
			Columns: bindingColumns(),
			Cells: func(b *admissionv1.ValidatingAdmissionPolicyBinding) []any {
				return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), table.AgeOf(b.CreationTimestamp)}
			},
		}.Untyped(),
	}
}
