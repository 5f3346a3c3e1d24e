package admissionregistration

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"
)

// validMutatingPolicy returns a policy with defaults.
func validMutatingPolicy() *admissionv1.MutatingAdmissionPolicy {
	of := validPolicy()
	p := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: of.ObjectMeta}
	p.Spec.FailurePolicy, p.Spec.MatchConstraints = of.Spec.FailurePolicy, of.Spec.MatchConstraints
	p.Spec.ReinvocationPolicy = admissionv1.NeverReinvocationPolicy
	p.Spec.Mutations = []admissionv1.Mutation{{
		PatchType:          admissionv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: "Object{}"},
	}}
	return p
}

// TestMutatingPolicyValidation compares errors with those of kube-apiserver.
func TestMutatingPolicyValidation(t *testing.T) {
	type spec = admissionv1.MutatingAdmissionPolicySpec
	apply := func(text string) func(*spec) {
		return func(s *spec) { s.Mutations[0].ApplyConfiguration.Expression = text }
	}
	patch := func(text string) func(*spec) {
		return func(s *spec) {
			s.Mutations = []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: text},
			}}
		}
	}
	for _, test := range []struct {
		change func(*spec)
		want   string
	}{
		{func(*spec) {}, ""},
		{apply("Object{spec: Object.spec{x: variables.size() > 0}}"), `no matching overload for 'size'`},
		{apply(" 1 "), `spec.mutations[0].applyConfiguration.expression: Invalid value: "1": must evaluate to Object but got int`},
		{apply(" "), `spec.mutations[0].applyConfiguration.expression: Required value`},
		{apply("Object.spec{}"), `must evaluate to Object but got Object.spec`},
		{apply("authorizer.path('/').check('get').allowed() ? Object{} : Object{}"), ""},
		{apply("JSONPatch{}"), `must evaluate to Object but got JSONPatch`},
		{apply("params.x"), `undeclared reference to 'params'`},
		{patch("[JSONPatch{op: 'add', path: '/a', value: {'b': 1}}]"), ""},
		{patch("[JSONPatch{op: 1}]"), `expected type of field 'op' is 'string' but provided type is 'int'`},
		{patch("[JSONPatch{path: '/' + jsonpatch.escapeKey('a/b')}]"), ""},
		{patch("[]"), `must evaluate to list(JSONPatch) but got list(dyn)`},
		{patch(""), `spec.mutations[0].jsonPatch.expression: Required value`},
		{func(s *spec) { s.Mutations = nil }, `spec.mutations: Required value: mutations must contain at least one item`},
		{func(s *spec) { s.Mutations[0].PatchType = "" }, `spec.mutations[0].patchType: Required value`},
		{func(s *spec) { s.Mutations[0].PatchType = "JSONPatch" },
			`[spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch, ` +
				`spec.mutations[0].applyConfiguration: Invalid value: "{applyConfiguration}": must not be specified when ` +
				`patchType is JSONPatch]`},
		{func(s *spec) { s.ReinvocationPolicy = "" }, `spec.reinvocationPolicy: Required value`},
		{func(s *spec) { s.ReinvocationPolicy = "Always" },
			`spec.reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"`},
		{func(s *spec) {
			s.Variables = []admissionv1.Variable{{Name: "a", Expression: "Object{}"}}
		}, `spec.variables[0].expression: Invalid value: "Object{}": compilation failed: ERROR: <input>:1:7: undeclared reference ` +
			`to 'Object'`},
		{func(s *spec) {
			s.MatchConstraints.ResourceRules[0].Operations = []admissionv1.OperationType{"CREATE", "DELETE"}
		}, `spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", ` +
			`"CREATE", "UPDATE"`},
		{func(s *spec) { s.MatchConstraints = nil }, `spec.matchConstraints: Required value`},
	} {
		p := validMutatingPolicy()
		test.change(&p.Spec)
		errs := validateMutatingPolicy(p)
		text := ""
		if len(errs) > 0 {
			text = errs.ToAggregate().Error()
		}
		if !strings.Contains(text, test.want) || (test.want == "") != (text == "") {
			t.Errorf("got  %s\nwant %s", text, test.want)
		}
	}
}

// TestMutatingPolicyUpdate checks that match conditions are not validated again if they are as before.
func TestMutatingPolicyUpdate(t *testing.T) {
	p := validMutatingPolicy()
	p.Spec.MatchConditions = []admissionv1.MatchCondition{{Name: "c", Expression: "1"}}
	if errs := validateMutatingPolicyUpdate(p, p.DeepCopy()); len(errs) != 0 {
		t.Error(errs)
	}
	if errs := validateMutatingPolicyUpdate(p, validMutatingPolicy()); len(errs) != 1 {
		t.Error(errs)
	}
}

func TestMutatingBindingValidation(t *testing.T) {
	for _, test := range []struct {
		change func(*admissionv1.MutatingAdmissionPolicyBindingSpec)
		want   string
	}{
		{func(*admissionv1.MutatingAdmissionPolicyBindingSpec) {}, ""},
		{func(s *admissionv1.MutatingAdmissionPolicyBindingSpec) { s.PolicyName = "" }, "spec.policyName: Required value"},
		{func(s *admissionv1.MutatingAdmissionPolicyBindingSpec) { s.PolicyName = "A" },
			`spec.policyName: Invalid value: "A": a lowercase RFC 1123 subdomain`},
		{func(s *admissionv1.MutatingAdmissionPolicyBindingSpec) {
			s.ParamRef = &admissionv1.ParamRef{Name: "a", ParameterNotFoundAction: ptr.To[admissionv1.ParameterNotFoundActionType]("")}
		}, "spec.paramRef.parameterNotFoundAction: Required value"},
		{func(s *admissionv1.MutatingAdmissionPolicyBindingSpec) {
			s.MatchResources = validPolicy().Spec.MatchConstraints
			s.MatchResources.ResourceRules[0].Operations = []admissionv1.OperationType{"DELETE"}
		}, `spec.matchResources.resourceRules.operations: Unsupported value: "DELETE"`},
	} {
		b := &admissionv1.MutatingAdmissionPolicyBinding{}
		b.Spec.PolicyName = "p"
		test.change(&b.Spec)
		errs := validateMutatingBinding(b)
		text := ""
		if len(errs) > 0 {
			text = errs.ToAggregate().Error()
		}
		if !strings.Contains(text, test.want) || (test.want == "") != (text == "") {
			t.Errorf("got  %s\nwant %s", text, test.want)
		}
	}
}
