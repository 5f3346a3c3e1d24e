package plugintest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestMutatingPoliciesChangeTheNextWrite creates and removes bindings. Each change has to take effect with the
// next write.
func TestMutatingPoliciesChangeTheNextWrite(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	dry, created := configMapsPath+"?dryRun=All", http.StatusCreated
	for i := range 20 {
		value := fmt.Sprint("v", i)
		s.Run(createMutating("p", "", "configmaps", apply("Object{data: {'k': '"+value+"'}}"), ""))
		s.Run([]apitest.Step{
			{"POST", dry, `{"metadata":{"name":"b"}}`, created, `"data":{"k":"` + value + `"}`},
			{"DELETE", mutatingBindingsPath + "/p", "", http.StatusOK, ""},
			{"POST", dry, `{"metadata":{"name":"b"},"data":{"x":"y"}}`, created, `"data":{"x":"y"}`},
			{"DELETE", mutatingPath + "/p", "", http.StatusOK, ""},
		})
	}
}

// TestMutationsOfPolicies applies mutations of both types.
func TestMutationsOfPolicies(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	const config, deployment = `{"metadata":{"name":"a","labels":{"n":"1"}},"data":{"x":"y"}}`, `{"metadata":{"name":"d"},` +
		`"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[` +
		`{"name":"c","image":"i:1"}]}}}}`
	const refused = "policy 'p' with binding 'p' denied request: "
	created, forbidden := http.StatusCreated, http.StatusForbidden
	for _, c := range []struct {
		kind, mutations, more string
		code                  int
		want                  string
	}{
		{"configmaps", apply("Object{metadata: Object.metadata{labels: {'m': 'x'}}}"), "", created, `"labels":{"m":"x","n":"1"}`},
		// The user owns the fields that the user has set. Nobody owns those that the policy has set.
		{"configmaps", apply("Object{data: {'k': 'v'}}"), "", created, `"f:data":{".":{},"f:x":{}},"f:metadata"`},
		{"configmaps", apply("Object{data: {'k': 'v'}}") + "," + patch("[JSONPatch{op: 'move', from: '/data/k', path: '/data/l'}]"),
			"", created, `"data":{"l":"v","x":"y"}`},
		{"configmaps", patch("[JSONPatch{op: 'test', path: '/data/x', value: 'z'}, JSONPatch{op: 'remove', path: '/data/x'}]"),
			"", created, `"data":{"x":"y"}`},
		{"configmaps", patch("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a.b/c'), value: 'd'}]"),
			"", created, `"labels":{"a.b/c":"d","n":"1"}`},
		{"configmaps", patch("[JSONPatch{op: 'remove', path: '/data/none'}]"), "", forbidden, refused + "JSON Patch: "},
		{"configmaps", patch("[JSONPatch{op: 'add', path: '/spec', value: {'a': 1}}]"), "", http.StatusInternalServerError,
			`Internal error occurred: strict decoding error: unknown field \"spec\"`},
		{"configmaps", patch("[JSONPatch{op: 'remove', path: '/data/none'}]"), `,"failurePolicy":"Ignore"`, created,
			`"data":{"x":"y"}`},
		{"configmaps", apply("Object{data: {'k': variables.a}}"), `,"variables":[{"name":"a","expression":"object.data.x + '1'"}]`,
			created, `"k":"y1"`},
		{"configmaps", apply("Object{data: {'k': 'v'}}"), `,"matchConditions":[{"name":"c","expression":"object.data.x != 'y'"}]`,
			created, `"data":{"x":"y"}`},
		{"configmaps", apply("Object{data: {'k': 'v'}}"), `,"matchConditions":[{"name":"c","expression":"object.data.z == 'y'"}]`,
			forbidden, refused + `expression 'object.data.z == 'y'' resulted in error: no such key: z","reason":"Invalid"`},
		{"configmaps", apply("Object{data: {'k': namespaceObject.metadata.name + request.operation + " +
			"string(authorizer.path('/').check('get').allowed())}}"), "", created, `"k":"defaultCREATEtrue"`},
		{"configmaps", apply("Object{nothing: 1}"), "", forbidden,
			refused + "error applying patch: failed to convert patch object to typed object: .nothing: field not declared in schema"},
		{"configmaps", apply("Object{metadata: Object.spec{}}"), "", forbidden, refused + "type mismatch: unexpected type name " +
			`\"Object.spec\", expected \"Object.metadata\", which matches field name path from root Object type`},
		{"deployments", apply("Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{" +
			"containers: [Object.spec.template.spec.containers{name: 'c', image: 'i:2'}, " +
			"Object.spec.template.spec.containers{name: 'e', image: 'j:1'}]}}}}"), "", created, `"containers":[{"name":"c","image":"i:2"`},
		{"deployments", apply("Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'c'}}}}"), "", forbidden,
			refused + "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector"},
	} {
		group, path, body := "", configMapsPath, config
		if c.kind == "deployments" {
			group, path, body = "apps", deploymentsPath, deployment
		}
		s.Run(createMutating("p", group, c.kind, c.mutations, c.more))
		s.Run([]apitest.Step{{"POST", path + "?dryRun=All", body, c.code, c.want}})
		s.Run(deleteMutating("p"))
	}
}

// TestMutatingPoliciesAreReinvoked counts how often policies are applied.
func TestMutatingPoliciesAreReinvoked(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	add := func(name string) string {
		return patch("[JSONPatch{op: 'add', path: '/data/order', value: (has(object.data.order) ? object.data.order : '') + '" +
			name + "'}]")
	}
	for _, c := range []struct{ a, b, want string }{
		{"Never", "Never", "ab"}, {"IfNeeded", "Never", "aba"}, {"Never", "IfNeeded", "abb"}, {"IfNeeded", "IfNeeded", "abab"},
	} {
		s.Run(createMutating("a", "", "configmaps", add("a"), `,"reinvocationPolicy":"`+c.a+`"`))
		s.Run(createMutating("b", "", "configmaps", add("b"), `,"reinvocationPolicy":"`+c.b+`"`))
		s.Run([]apitest.Step{
			{"POST", configMapsPath + "?dryRun=All", `{"metadata":{"name":"x"},"data":{}}`, http.StatusForbidden, "no such key: data"},
			{"POST", configMapsPath + "?dryRun=All", `{"metadata":{"name":"x"},"data":{"k":"v"}}`, http.StatusCreated,
				`"order":"` + c.want + `"`},
		})
		s.Run(append(deleteMutating("a"), deleteMutating("b")...))
	}
}

// TestMutatingPolicyParameters applies a policy with parameters of a built-in and of a custom kind to a custom resource.
func TestMutatingPolicyParameters(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	created, forbidden := http.StatusCreated, http.StatusForbidden
	const things = "/apis/example.com/v1/namespaces/default/things"
	s.Run([]apitest.Step{
		{"POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"things.example.com"},` +
			`"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"things","singular":"thing","kind":"Thing",` +
			`"listKind":"ThingList"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":` +
			`{"type":"object","properties":{"most":{"type":"integer","default":7},"list":{"type":"array",` +
			`"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],` +
			`"properties":{"k":{"type":"string"},"v":{"type":"string","default":"w"}}}},"atomic":{"type":"array","items":` +
			`{"type":"string"}}}}}}]}}`, created, ""},
	})
	s.Served(things)
	mutation := apply("Object{most: params.most, list: [Object.list{k: params.metadata.name}]}")
	steps := createMutating("p", "example.com", "things", mutation, `,"paramKind":{"apiVersion":"example.com/v1","kind":"Thing"}`)
	s.Run(steps[:1])
	dry, body := things+"?dryRun=All", `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"x"},"list":[{"k":"a"}]}`
	thing := func(name, more string) string {
		return `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"` + name + `","labels":{"use":"yes"}}` + more + `}`
	}
	binding := func(ref string) apitest.Step {
		return apitest.Step{"POST", mutatingBindingsPath, mutatingBinding("p", `,"paramRef":{`+ref+`}`), created, ""}
	}
	s.Run([]apitest.Step{
		{"POST", things, thing("l", `,"most":3`), created, ""},
		{"POST", things, thing("m", `,"most":4`), created, ""},
		binding(`"name":"none","parameterNotFoundAction":"Deny"`),
		{"POST", dry, body, forbidden, "policy 'p' with binding 'p' denied request: failed to configure binding: no params found " +
			"for policy binding with `Deny` parameterNotFoundAction"},
		{"DELETE", mutatingBindingsPath + "/p", "", http.StatusOK, ""},
		binding(`"name":"l","parameterNotFoundAction":"Deny"`),
		{"POST", dry, body, created, `"list":[{"k":"a","v":"w"},{"k":"l","v":"w"}],"metadata"`},
		{"POST", dry, body, created, `"most":3`},
		{"DELETE", mutatingBindingsPath + "/p", "", http.StatusOK, ""},
		binding(`"selector":{"matchLabels":{"use":"yes"}},"parameterNotFoundAction":"Allow"`),
		{"POST", dry, body, created, `"list":[{"k":"a","v":"w"},{"k":"l","v":"w"},{"k":"m","v":"w"}],"metadata"`},
	})
	s.Run(deleteMutating("p"))
	s.Run(createMutating("p", "example.com", "things", apply("Object{atomic: ['a']}"), ""))
	s.Run([]apitest.Step{{"POST", dry, body, forbidden,
		"may not mutate atomic arrays, maps or structs: .atomic"}})
}

// TestMutatingPoliciesOfSubresources changes the bodies of a subresource. A body has no schema if its API group is
// not that of the resource, as in kube-apiserver.
func TestMutatingPoliciesOfSubresources(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	s.Run([]apitest.Step{{"POST", deploymentsPath, `{"metadata":{"name":"d"},"spec":{"selector":{` +
		`"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
		http.StatusCreated, ""}})
	for _, c := range []struct {
		mutation string
		code     int
		want     string
	}{
		{patch("[JSONPatch{op: 'replace', path: '/spec/replicas', value: 5}]"), http.StatusOK, `"replicas":5`},
		{apply("Object{spec: Object.spec{replicas: 5}}"), http.StatusForbidden, "no corresponding type for autoscaling/v1, Kind=Scale"},
	} {
		s.Run(createMutating("p", "apps", "deployments/scale", c.mutation, ""))
		s.Run([]apitest.Step{
			{"PATCH", deploymentsPath + "/d/scale?dryRun=All", `{"spec":{"replicas":2}}`, c.code, c.want},
		})
		s.Run(deleteMutating("p"))
	}
}

// TestPoliciesDoNotConcernPolicies creates a policy that refuses everything. The policy itself can still be
// removed.
func TestPoliciesDoNotConcernPolicies(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	s.Run(createMutating("p", "*", "*", patch("[JSONPatch{op: 'remove', path: '/none'}]"), ""))
	s.Run([]apitest.Step{
		{"POST", configMapsPath, `{"metadata":{"name":"x"}}`, http.StatusForbidden, "policy 'p' with binding 'p' denied request"},
		{"POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{}`, http.StatusCreated, ""},
		{"PATCH", mutatingBindingsPath + "/p", `{"metadata":{"labels":{"a":"b"}}}`, http.StatusOK, ""},
	})
	s.Run(deleteMutating("p"))
	s.Run([]apitest.Step{{"POST", configMapsPath, `{"metadata":{"name":"x"}}`, http.StatusCreated, ""}})
}

// TestPoliciesSeeTheNamespaceOfUpdates sends an update whose body does not name the namespace.
func TestPoliciesSeeTheNamespaceOfUpdates(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	s.Run(createMutating("p", "", "configmaps", apply("Object{data: {'k': object.metadata.namespace}}"), ""))
	s.Run([]apitest.Step{
		{"POST", configMapsPath, `{"metadata":{"name":"x"}}`, http.StatusCreated, `"k":"default"`},
		{"PUT", configMapsPath + "/x", `{"metadata":{"name":"x"}}`, http.StatusOK, `"k":"default"`},
	})
}

// TestMutatingPolicyCosts checks that the cost of an expression is bounded, also if its variables cause it.
func TestMutatingPolicyCosts(t *testing.T) {
	config := servertest.Default()
	config.Requests.Timeout = 10 * time.Minute // so many evaluations may last long on a busy machine
	s := servertest.Start(t, config)
	data := `{"metadata":{"name":"b"},"data":{"k0":""`
	for i := range 400 {
		data += fmt.Sprintf(`,"k%d":"v"`, i+1)
	}
	const cubic = "object.data.all(a, object.data.all(b, object.data.all(c, a + b + c != '')))"
	const square = "object.data.all(a, object.data.all(b, a + b != ''))"
	refused := func(expression, more, why string) {
		t.Helper()
		s.Run(createMutating("p", "", "configmaps", apply(expression+" ? Object{} : Object{}"), more))
		s.Run([]apitest.Step{{"POST", configMapsPath, data + "}}", http.StatusForbidden, why}})
		s.Run(deleteMutating("p"))
	}
	refused(cubic, "", "operation cancelled: actual cost limit exceeded")
	if !effort.Full() { // so many evaluations take 15 s; with the race detector, longer than a request may
		return
	}
	var variables, all []string
	for i := range 14 { // each costs less than the limit of one evaluation
		variables = append(variables, fmt.Sprintf(`{"name":"v%d","expression":"%s"}`, i, square))
		all = append(all, fmt.Sprintf("variables.v%d", i))
	}
	refused(strings.Join(all, " && "), `,"variables":[`+strings.Join(variables, ",")+`]`,
		"validation failed due to running out of cost budget, no further validation rules will be run")
}
