package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

func mutatingAdmissionPolicyBinding() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "admissionregistration", Resource: "mutatingadmissionpolicybindings",
			Name: "MutatingAdmissionPolicyBinding", Categories: categories,
		},
		Versions: []registry.Version{
			declare.Version("v1", defaultMutatingBinding),
			declare.SameMessage[admissionv1beta1.MutatingAdmissionPolicyBinding]("v1beta1", defaultMutatingBinding),
			declare.SameMessage[admissionv1alpha1.MutatingAdmissionPolicyBinding]("v1alpha1", defaultAlphaBinding),
		},
		Storage:  registry.Storage{Version: "v1", Path: "mutatingadmissionpolicybindings"},
		Metadata: registry.Metadata{AnyFinalizer: true, OnUpdate: registry.MetaNew},
		Strategy: registry.Strategy[*admissionv1.MutatingAdmissionPolicyBinding]{
			Generation: true,
			Validate:   validateMutatingBinding,
		}.Untyped(),
		Table: registry.Table[*admissionv1.MutatingAdmissionPolicyBinding]{
			Columns: bindingColumns(),
			Cells: func(b *admissionv1.MutatingAdmissionPolicyBinding) []any {
				return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), table.AgeOf(b.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

func defaultMutatingBinding(b *admissionv1.MutatingAdmissionPolicyBinding) {
	defaultMatch(b.Spec.MatchResources)
}

// defaultAlphaBinding sets the defaults of v1alpha1, where an action for missing parameters has a default.
// In v1beta1 and v1 a binding with paramRef and without the action is refused; see validateParamRef.
func defaultAlphaBinding(b *admissionv1.MutatingAdmissionPolicyBinding) {
	defaultMutatingBinding(b)
	if r := b.Spec.ParamRef; r != nil {
		declare.Pointer(&r.ParameterNotFoundAction, admissionv1.DenyAction)
	}
}
