package celvars

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// recorder allows the verb "get" and counts the questions.
type recorder struct{ asked []authz.Attributes }

func (r *recorder) Authorize(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	r.asked = append(r.asked, a)
	if a.Info.Verb == "get" {
		return authz.Allow, "by test", nil
	}
	return authz.NoOpinion, "", nil
}

func write() (*Write, *admission.Attributes) {
	names := admission.Names{
		Kind: corev1.SchemeGroupVersion.WithKind("Pod"), Resource: corev1.SchemeGroupVersion.WithResource("pods"),
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", Labels: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i:1"}}},
	}
	a := &admission.Attributes{
		Operation: admission.Create, Resource: corev1.Resource("pods"), Requested: names, Stored: names,
		Namespace: "n", Name: "p", Object: pod, Options: admission.Options{DryRun: true, FieldManager: "m"},
		User: &request.User{Name: "u", Groups: []string{"g"}},
	}
	return NewWrite(a, names, pod, nil), a
}

func TestExpressionsSeeTheWrite(t *testing.T) {
	w, a := write()
	asked := &recorder{}
	inputs := Inputs{
		Params:     &corev1.ConfigMap{Data: map[string]string{"k": "v"}},
		ParamsKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		Namespace:  &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"x": "y"}}},
		Authorizer: NewAuthorizer(t.Context(), asked, a),
	}
	for _, source := range []string{
		`object.kind == 'Pod' && object.apiVersion == 'v1' && object.metadata.labels.a == 'b'`,
		`oldObject == null`,
		`request.operation == 'CREATE' && request.kind.kind == 'Pod' && request.resource.resource == 'pods'`,
		`request.name == 'p' && request.namespace == 'n' && request.dryRun && !has(request.subResource)`,
		`request.userInfo.username == 'u' && request.userInfo.groups == ['g'] && !has(request.userInfo.extra)`,
		`request.options.kind == 'CreateOptions' && request.options.fieldManager == 'm' && request.options.dryRun == ['All']`,
		`params.data.k == 'v' && params.kind == 'ConfigMap' && params.apiVersion == 'v1'`,
		`namespaceObject.metadata.labels.x == 'y' && namespaceObject.metadata.name == 'n'`,
		`authorizer.group('').resource('secrets').namespace('n').check('get').allowed()`,
		`authorizer.group('').resource('secrets').namespace('n').check('get').reason() == 'by test'`,
		`!authorizer.path('/healthz').check('post').allowed()`,
		`!authorizer.requestResource.check('delete').allowed() && authorizer.requestResource.check('get').allowed()`,
		`authorizer.serviceAccount('n', 's').group('').resource('pods').labelSelector('a=b').check('get').allowed()`,
		`object.spec.containers.all(c, c.image.endsWith(':1'))`,
		`variables.two == 4 && variables.images == ['i:1']`,
	} {
		c := NewCompiler(Options{Params: true, Variables: true})
		c.Variable("one", "1 + 1")
		c.Variable("two", "variables.one * 2")
		c.Variable("images", "object.spec.containers.map(c, c.image)")
		e := c.Compile(source, true, types.BoolType)
		inputs.Variables = c.Variables()
		budget := Budget
		value, err := e.Evaluate(t.Context(), w.Values(inputs), &budget)
		if err != nil || value != types.True {
			t.Errorf("%s: %v, %v", source, value, err)
		}
		if budget >= Budget {
			t.Errorf("%s cost nothing", source)
		}
	}
	if len(asked.asked) != 5 {
		t.Errorf("the authorizer was asked %d times, want 5: one question was put twice", len(asked.asked))
	}
	last := asked.asked[len(asked.asked)-1]
	requirements, err := last.Selectors.Labels()
	if last.User.Name != "system:serviceaccount:n:s" || len(requirements) != 1 || err != nil {
		t.Errorf("asked for %+v with %v, %v", last.User, requirements, err)
	}
}

// TestErrorsReadAsKubeAPIServers compares texts that clients see.
func TestErrorsReadAsKubeAPIServers(t *testing.T) {
	w, _ := write()
	for _, test := range []struct{ source, want string }{
		{`object.spec.nothing == 1`, `expression 'object.spec.nothing == 1' resulted in error: no such key: nothing`},
		{`1`, `compilation error: must evaluate to bool but got int`},
		{`variables.bad == 1`, `expression 'variables.bad == 1' resulted in error: composited variable "bad" fails to ` +
			`evaluate: division by zero`},
		{`authorizer.path('/').check('get').allowed()`, `expression 'authorizer.path('/').check('get').allowed()' resulted ` +
			`in error: no such attribute(s): authorizer`},
	} {
		c := NewCompiler(Options{Variables: true})
		c.Variable("bad", "1 / 0")
		budget := Budget
		_, err := c.Compile(test.source, true, types.BoolType).
			Evaluate(t.Context(), w.Values(Inputs{Variables: c.Variables()}), &budget)
		if err == nil || err.Error() != test.want {
			t.Errorf("%s:\ngot  %v\nwant %s", test.source, err, test.want)
		}
	}
}

// TestVariablesArePaid checks that the cost of variables counts, and that each is evaluated once.
func TestVariablesArePaid(t *testing.T) {
	w, _ := write()
	c := NewCompiler(Options{Variables: true})
	c.Variable("long", "[1,2,3,4,5,6,7,8].map(x, x * 2).size()")
	uses := c.Compile("variables.long == 8", true, types.BoolType)
	v := w.Values(Inputs{Variables: c.Variables()})
	budget := Budget
	if _, err := uses.Evaluate(t.Context(), v, &budget); err != nil {
		t.Fatal(err)
	}
	first := Budget - budget
	if _, err := uses.Evaluate(t.Context(), v, &budget); err != nil {
		t.Fatal(err)
	}
	if second := Budget - first - budget; second*3 > first {
		t.Errorf("the first use cost %d, the second %d", first, second)
	}
	budget = 5
	_, err := EvaluateAll(t.Context(), []*Expression{uses}, w.Values(Inputs{Variables: c.Variables()}), &budget)
	var fatal *FatalError
	if !errors.As(err, &fatal) || !strings.HasPrefix(err.Error(), "validation failed due to running out of cost budget") {
		t.Errorf("with a budget of 5: %v", err)
	}
}

func TestConditions(t *testing.T) {
	w, _ := write()
	for _, test := range []struct {
		conditions []string
		match      bool
		err        string
	}{
		{nil, true, ""},
		{[]string{"true", "object.metadata.name == 'p'"}, true, ""},
		{[]string{"1 / 0 == 1", "false"}, false, ""},
		{[]string{"1 / 0 == 1", "true"}, false, "expression '1 / 0 == 1' resulted in error: division by zero"},
	} {
		var list []admissionregistrationv1.MatchCondition
		for _, c := range test.conditions {
			list = append(list, admissionregistrationv1.MatchCondition{Name: "x", Expression: c})
		}
		r := NewCompiler(Options{}).Conditions(list).Evaluate(t.Context(), w.Values(Inputs{}))
		if text := errorText(r.Err); r.Match != test.match || text != test.err {
			t.Errorf("%q: %t, %q", test.conditions, r.Match, text)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestCustomResourcesAreNotCopied checks that expressions see the content of a custom resource itself, not a copy.
func TestCustomResourcesAreNotCopied(t *testing.T) {
	obj := &unstructured.Unstructured{Object: map[string]any{"kind": "K", "spec": map[string]any{"n": int64(3)}}}
	_, a := write()
	w := NewWrite(a, a.Stored, obj, obj)
	c := NewCompiler(Options{})
	budget := Budget
	value, err := c.Compile("object.spec.n == 3 && object == oldObject", true, types.BoolType).
		Evaluate(t.Context(), w.Values(Inputs{}), &budget)
	if err != nil || value != types.True {
		t.Error(value, err)
	}
}
