package admissionregistration

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// validPolicy returns a policy with defaults.
func validPolicy() *admissionv1.ValidatingAdmissionPolicy {
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.FailurePolicy = ptr.To(admissionv1.Fail)
	p.Spec.Validations = []admissionv1.Validation{{Expression: "true"}}
	p.Spec.MatchConstraints = &admissionv1.MatchResources{
		MatchPolicy: ptr.To(admissionv1.Equivalent), NamespaceSelector: &metav1.LabelSelector{},
		ObjectSelector: &metav1.LabelSelector{},
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}},
	}
	return p
}

// TestPolicyValidation compares errors with those of kube-apiserver.
func TestPolicyValidation(t *testing.T) {
	type spec = admissionv1.ValidatingAdmissionPolicySpec
	expression := func(text string) func(*spec) { return func(s *spec) { s.Validations[0].Expression = text } }
	for _, test := range []struct {
		change func(*spec)
		want   string
	}{
		{func(*spec) {}, ""},
		{expression("1"), `spec.validations[0].expression: Invalid value: "1": must evaluate to bool but got int`},
		{expression(" "), `spec.validations[0].expression: Required value: expression is not specified`},
		{expression("params.x"), `compilation failed: ERROR: <input>:1:1: undeclared reference to 'params'`},
		{expression("variables.x"), `compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables'`},
		{expression("request.uid == ''"), `undefined field 'uid'`},
		{expression("'a'.matches('[')"), `compilation failed: ERROR: <input>:1:13: invalid matches argument`},
		{func(s *spec) {
			s.Variables = []admissionv1.Variable{{Name: "a", Expression: "'x'"}, {Name: "b", Expression: "variables.a + 1"}}
		}, `spec.variables[1].expression: Invalid value: "variables.a + 1": compilation failed: ERROR: <input>:1:13: found no ` +
			`matching overload for '_+_' applied to '(string, int)'`},
		{func(s *spec) { s.Variables = []admissionv1.Variable{{Name: "in", Expression: "1"}} },
			`spec.variables[0].name: Invalid value: "in": must be a valid CEL identifier`},
		{func(s *spec) { s.Validations[0].MessageExpression = "authorizer.path('/').check('get').reason()" },
			`undeclared reference to 'authorizer'`},
		{func(s *spec) { s.Validations[0].Reason = ptr.To(metav1.StatusReason("Unauthorized")) },
			`spec.validations[0].reason: Unsupported value: "Unauthorized": supported values: "Forbidden", "Invalid", ` +
				`"RequestEntityTooLarge"`},
		{func(s *spec) { s.Validations = nil },
			`spec.validations: Required value: validations or auditAnnotations must contain at least one item`},
		{func(s *spec) {
			s.MatchConditions = []admissionv1.MatchCondition{{Name: "a", Expression: "variables.x"}}
		},
			`spec.matchConditions[0].expression: Invalid value: "variables.x": compilation failed`},
		{func(s *spec) {
			s.AuditAnnotations = []admissionv1.AuditAnnotation{{Key: "a", ValueExpression: "object.x"}}
		}, `must evaluate to one of [string null_type] but got dyn`},
		{func(s *spec) { s.MatchConstraints.ResourceRules[0].Resources = []string{"pods/*", "pods/status"} },
			`spec.matchConstraints.resourceRules[0].resources[1]: Invalid value: "pods/status": if 'pods/*' is present, must ` +
				`not specify pods/status`},
	} {
		p := validPolicy()
		test.change(&p.Spec)
		errs := validateValidatingPolicy(p)
		text := ""
		if len(errs) > 0 {
			text = errs.ToAggregate().Error()
		}
		if !strings.Contains(text, test.want) || (test.want == "") != (text == "") {
			t.Errorf("got  %s\nwant %s", text, test.want)
		}
	}
}

func TestBindingValidation(t *testing.T) {
	valid := func() *admissionv1.ValidatingAdmissionPolicyBinding {
		b := &admissionv1.ValidatingAdmissionPolicyBinding{}
		b.Spec.PolicyName = "p"
		b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Deny}
		return b
	}
	for _, test := range []struct {
		change func(*admissionv1.ValidatingAdmissionPolicyBindingSpec)
		want   string
	}{
		{func(*admissionv1.ValidatingAdmissionPolicyBindingSpec) {}, ""},
		{func(s *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
			s.ValidationActions = append(s.ValidationActions, admissionv1.Warn)
		}, "must not contain both Deny and Warn"},
		{func(s *admissionv1.ValidatingAdmissionPolicyBindingSpec) { s.ParamRef = &admissionv1.ParamRef{} },
			"[spec.paramRef: Required value: one of name or selector must be specified, " +
				"spec.paramRef.parameterNotFoundAction: Required value]"},
	} {
		b := valid()
		test.change(&b.Spec)
		errs := validateValidatingBinding(b)
		text := ""
		if len(errs) > 0 {
			text = errs.ToAggregate().Error()
		}
		if !strings.Contains(text, test.want) || (test.want == "") != (text == "") {
			t.Errorf("got  %s\nwant %s", text, test.want)
		}
	}
}
