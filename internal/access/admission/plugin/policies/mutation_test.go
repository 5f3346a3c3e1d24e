package policies

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types/ref"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/celvars"
	"github.com/keelson-dev/keelson/internal/machinery/cel/writescope"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/jsonpatch"
	"github.com/keelson-dev/keelson/internal/object/mergeschema"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/registry/informer"
)

// evaluated returns the value of an expression that makes a patch of a ConfigMap.
func evaluated(t *testing.T, source string, jsonPatch bool) ref.Val {
	t.Helper()
	returns := writescope.ApplyConfigurationType()
	if jsonPatch {
		returns = writescope.JSONPatchesType()
	}
	names := admission.Names{
		Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: corev1.SchemeGroupVersion.WithResource("configmaps"),
	}
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}}
	a := &admission.Attributes{Resource: corev1.Resource("configmaps"), Requested: names, Stored: names, Name: "a", Object: obj}
	e := celvars.NewCompiler(celvars.Options{}).CompilePatch(source, returns)
	if e.Err != nil {
		t.Fatal(e.Err)
	}
	budget := celvars.Budget
	value, err := e.Evaluate(t.Context(), celvars.NewWrite(a, names, obj, nil).Values(celvars.Inputs{}), &budget)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestOperations(t *testing.T) {
	for source, want := range map[string]string{
		`'x'`: `"x"`, `1`: `1`, `9007199254740993`: `"9007199254740993"`, `1.5`: `1.5`, `true`: `true`, `null`: `null`,
		`{'a': [1]}`: `{"a":[1]}`, `object.data`: `{"k":"v"}`, `b'abc'`: `"YWJj"`, `duration('1h')`: `"3600s"`,
		`Object{a: Object.a{b: 'c'}}`: `{"a":{"b":"c"}}`, `[Object{a: 'b'}]`: `[{"a":"b"}]`, `{'a': Object{}}`: `{"a":{}}`,
	} {
		got, err := operationsOf(evaluated(t, `[JSONPatch{op: 'add', path: '/a', value: `+source+`}]`, true))
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		got[0].Value = []byte(strings.ReplaceAll(string(got[0].Value), ": ", ":")) // protobuf adds spaces at random
		if operation := (jsonpatch.Operation{Op: "add", Path: "/a", Value: []byte(want)}); !reflect.DeepEqual(got[0], operation) {
			t.Errorf("%s: %+v, want %+v", source, got[0], operation)
		}
	}
	for source, want := range map[string]string{
		`Object.b{c: Object.d{}}`: `type mismatch: unexpected type name`,
		`optional.none()`:         `could not marshal to JSON`,
		`Object{a: null}`:         `could not marshal to JSON`,
	} {
		expression := `[JSONPatch{op: 'add', path: '/a', value: ` + source + `}]`
		if got, err := operationsOf(evaluated(t, expression, true)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v %v", source, got, err)
		}
	}
}

// TestMerge merges configurations with a Deployment by its schema.
func TestMerge(t *testing.T) {
	tree := func() map[string]any {
		return map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"labels": map[string]any{"a": "b"}},
			"spec": map[string]any{"replicas": int64(1), "template": map[string]any{"spec": map[string]any{"containers": []any{
				map[string]any{"name": "c", "image": "i"},
			}}}},
		}
	}
	const containers = "spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: "
	const container = "Object.spec.template.spec.containers"
	for _, c := range []struct{ source, want string }{
		{"Object{}", ""},
		{"Object{metadata: Object.metadata{labels: {'c': 'd'}}}", "metadata map[labels:map[a:b c:d]]"},
		{"Object{spec: Object.spec{replicas: 2}}", "replicas:2 "},
		{"Object{" + containers + "[" + container + "{name: 'c', image: 'j'}, " + container + "{name: 'd'}]}}}}",
			"containers:[map[image:j name:c] map[name:d]]"},
		{"Object{apiVersion: 'v1'}", ""},
		{"Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}",
			"error: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector"},
		{"Object{" + containers + "[" + container + "{name: 'c', args: ['a']}]}}}}",
			"error: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.template.spec.containers[0].args"},
		{"Object{spec: Object.spec{replicas: 'x'}}", "error: failed to convert patch object to typed object: .spec.replicas: "},
		{"Object{spec: Object.spec{other: 'x'}}", ".spec.other: field not declared in schema"},
		{"Object{metadata: Object{}}", "error: type mismatch: "},
	} {
		before := tree()
		configuration, err := configurationOf(evaluated(t, c.source, false))
		var got map[string]any
		if err == nil {
			configuration.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
			got, err = merge(mergeschema.Converter{}, before, configuration)
		}
		text := ""
		if err != nil {
			text = "error: " + err.Error()
		} else {
			for _, name := range []string{"metadata", "spec"} {
				text += name + " " + fmt.Sprint(got[name]) + " "
			}
		}
		if !strings.Contains(text, c.want) {
			t.Errorf("%s: %s, want %s", c.source, text, c.want)
		}
		if !reflect.DeepEqual(before, tree()) {
			t.Errorf("%s has changed the object: %v", c.source, before)
		}
	}
}

// TestPoliciesShareExpressions checks that policies with the same expressions are compiled once, and that the
// expressions of removed policies are dropped.
func TestPoliciesShareExpressions(t *testing.T) {
	s := &source{kind: mutatingKind()}
	s.resetPolicies()
	s.bindings = map[string]*binding{}
	set := func(name, expression string, failure admissionregistrationv1.FailurePolicyType) {
		p := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.FailurePolicy = &failure
		p.Spec.Mutations = []admissionregistrationv1.Mutation{{
			PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
			ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression},
		}}
		s.setPolicy(informer.Change{Name: name, Object: registry.Object(p)})
		s.publish()
	}
	set("a", "Object{}", admissionregistrationv1.Fail)
	set("b", "Object{}", admissionregistrationv1.Ignore)
	set("c", "Object{x: 1}", admissionregistrationv1.Fail)
	first := s.policies["a"].compiled()
	if s.policies["b"].compiled() != first || s.policies["c"].compiled() == first {
		t.Error("not shared by content")
	}
	set("a", "Object{}", admissionregistrationv1.Ignore)
	if s.policies["a"].compiled() != first || !s.policies["a"].ignore {
		t.Error("compiled again after a change of something else")
	}
	for i := range 20 {
		set("d", "Object{x: "+strings.Repeat("1", i+1)+"}", admissionregistrationv1.Fail)
	}
	if len(s.compiled) > len(s.policies) {
		t.Errorf("%d sets of expressions for %d policies", len(s.compiled), len(s.policies))
	}
}
