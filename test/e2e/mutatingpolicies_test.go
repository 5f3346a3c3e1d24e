package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	mutatingPolicies = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
	mutatingBindings = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
	// policyBatch is how many policies exist at the same time.
	policyBatch = 100
)

// TestMutatingPoliciesAsKubeAPIServer creates random MutatingAdmissionPolicies in kube-apiserver and Keelson, and sends
// writes that they change or refuse. It fails if one of the answers differs. KEELSON_FUZZ_PAIRS is the number of requests,
// KEELSON_FUZZ_SEED repeats a run.
func TestMutatingPoliciesAsKubeAPIServer(t *testing.T) {
	dir := logDir(t)
	f := &mutatingFuzz{
		rng:       rand.New(rand.NewPCG(fuzzSeed(t), 0)),
		reference: kubeAPIServer(t, dir, startEtcd(t, dir)), keelson: keelsonOn(t, dir), tally: map[string]int{},
	}
	f.setUp(t)
	for first := 0; f.sent < fuzzPairs(t); first += policyBatch {
		f.batch(t, first)
	}
	f.subresources(t)
	t.Logf("kube-apiserver answered %v", f.tally)
	f.found.without(t, []known{
		{func(d *difference) bool { return d.want.code == 0 }, "kube-apiserver panics; Keelson refuses the write"},
		{func(d *difference) bool {
			return strings.Contains(d.request, "deletionTimestamp") || strings.Contains(d.request, "selfLink")
		}, "kube-apiserver creates an object that is being deleted, or has a selfLink, if a policy says so"},
		{func(d *difference) bool {
			return strings.HasPrefix(d.request, "PUT") && d.got.code == http.StatusConflict &&
				(strings.Contains(d.request, "/metadata/uid") || strings.Contains(d.request, "uid: 'x'"))
		}, "kube-apiserver compares the uid of the body, Keelson the one that a policy has set"},
		{func(d *difference) bool {
			return strings.Contains(d.request, "/namespaces/m/pods/base") && strings.Contains(d.request, "/spec/tolerations") &&
				d.want.code == d.got.code
		}, "kube-apiserver has two causes for an update that removes tolerations of a pod, Keelson one of them"},
		{func(d *difference) bool {
			return strings.Contains(d.request, "example.com/v1") && d.got.code == http.StatusInternalServerError &&
				strings.Contains(d.got.message, "ObjectMeta.")
		}, "Keelson refuses metadata of a wrong type in custom resources; kube-apiserver drops it"},
		{func(d *difference) bool {
			return strings.Contains(d.request, "example.com/v1") && strings.Contains(d.request, "JSONPatch") &&
				(strings.Contains(d.group, "generation") || strings.Contains(d.request, "value: null") ||
					strings.Contains(d.want.message, "original"))
		}, "Keelson removes unknown fields, and null where it is not allowed, from custom resources after each mutation; " +
			"kube-apiserver does so when it has stored them, and later mutations fail because of them"},
	})
	f.found.report(t)
}

// mutatingFuzz compares the two servers.
type mutatingFuzz struct {
	rng                *rand.Rand
	reference, keelson *apiServer
	kinds              []mutatedKind
	sent               int
	tally              map[string]int
	found              differences
}

// mutatedKind is a kind of objects that policies change.
type mutatedKind struct {
	group, resource, path string
	// body is an object without labels; the object "base" exists.
	body string
	// configurations are expressions of type ApplyConfiguration, places are paths for operations of JSON patches.
	configurations, places []string
}

// both sends a request to both servers and compares the answers. It returns the status code of kube-apiserver.
func (f *mutatingFuzz) both(t *testing.T, about, method, path string, body any, contentType string) int {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	f.sent++
	code, want, err := f.reference.call(t.Context(), method, path, jsonType, contentType, text)
	if err != nil { // kube-apiserver cuts the connection when it panics
		code, want = 0, []byte("no answer")
	}
	gotCode, got := f.keelson.must(t, method, path, jsonType, contentType, text)
	f.tally[fmt.Sprint(code)]++
	a, b := mutated(code, want), mutated(gotCode, got)
	if a != b {
		f.found.add(difference{
			group: fmt.Sprintf("%s %s %d %d %s", method, path[strings.LastIndex(path, "/"):], code, gotCode, difference1(a, b)),
			wrong: "the answers differ", request: fmt.Sprintf("%s %s %s\n%s", method, path, text, about),
			want: outcome{code: code, message: a}, got: outcome{code: gotCode, message: b},
		})
	}
	return code
}

// difference1 returns the beginning of what differs between two texts.
func difference1(a, b string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	return a[max(0, i-10):min(len(a), i+10)]
}

// mutated returns an answer without what no two servers have in common. The words of messages are in one order, because
// kube-apiserver has none for several errors.
func mutated(code int, body []byte) string {
	var doc tree
	if err := json.Unmarshal(body, &doc); err != nil {
		return fmt.Sprintf("%d %s", code, body)
	}
	if meta, ok := doc["metadata"].(tree); ok {
		for _, name := range []string{"uid", "resourceVersion", "creationTimestamp"} {
			delete(meta, name)
		}
		if entries, ok := meta["managedFields"].([]any); ok {
			for _, e := range entries {
				delete(e.(tree), "time")
			}
		}
	}
	if doc["kind"] == "Status" {
		sortWords(doc)
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// sortWords sorts the words of the messages of a Status, and its causes by these.
func sortWords(status tree) {
	words := func(of tree) {
		message, _ := of["message"].(string)
		message, _, _ = strings.Cut(message, "is missing in '") // the whole object follows
		list := strings.FieldsFunc(message, func(r rune) bool { return strings.ContainsRune("[], \n\u00a0", r) })
		slices.Sort(list)
		of["message"] = strings.Join(list, " ")
	}
	words(status)
	details, _ := status["details"].(tree)
	delete(details, "uid")
	causes, _ := details["causes"].([]any)
	for _, c := range causes {
		words(c.(tree))
	}
	slices.SortFunc(causes, func(a, b any) int {
		return strings.Compare(a.(tree)["message"].(string), b.(tree)["message"].(string))
	})
}

const thingCRD = `{"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
"names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},"versions":[{"name":"v1","served":true,
"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{
"count":{"type":"integer","minimum":0,"default":7},"name":{"type":"string","nullable":true},
"port":{"x-kubernetes-int-or-string":true},"free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
"set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
"plain":{"type":"array","items":{"type":"string"}},
"rules":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object",
"required":["k"],"properties":{"k":{"type":"string"},"v":{"type":"string","default":"w"},"n":{"type":"number"}}}},
"whole":{"type":"object","x-kubernetes-map-type":"atomic","properties":{"a":{"type":"string"}}},
"labels":{"type":"object","additionalProperties":{"type":"string"}}}}}}}}]}}`

// setUp creates what policies refer to, and the objects that are changed.
func (f *mutatingFuzz) setUp(t *testing.T) {
	t.Helper()
	f.kinds = mutatedKinds()
	post := func(path, body string) {
		t.Helper()
		for _, s := range []*apiServer{f.reference, f.keelson} {
			if code, answer := s.must(t, http.MethodPost, path, jsonType, jsonType, []byte(body)); code >= 300 && code != 409 {
				t.Fatalf("%s: %d %s", path, code, answer)
			}
		}
	}
	post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", thingCRD)
	post("/api/v1/namespaces", `{"metadata":{"name":"m","labels":{"team":"blue"}}}`)
	post("/api/v1/namespaces/m/serviceaccounts", `{"metadata":{"name":"default"}}`)
	post("/api/v1/namespaces/m/configmaps", `{"metadata":{"name":"p1","labels":{"use":"yes"}},"data":{"a":"1"}}`)
	post("/api/v1/namespaces/m/configmaps", `{"metadata":{"name":"p2","labels":{"use":"yes"}},"data":{"a":"2"}}`)
	f.await(t, http.MethodPost, "/apis/example.com/v1/namespaces/m/things?dryRun=All",
		`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"x"}}`, func(code int, _ string) bool { return code == 201 })
	for i := range f.kinds {
		k := &f.kinds[i]
		post(k.path, k.object(tree{"name": "base"}))
	}
	// kube-apiserver looks for new schemas every five seconds.
	f.sentinel(t, "schema", "things", "example.com", "Object{spec: Object.spec{name: 'seen'}}")
	f.await(t, http.MethodPost, f.kinds[len(f.kinds)-1].path+"?dryRun=All",
		f.kinds[len(f.kinds)-1].object(tree{"name": "x", "labels": tree{"case": "schema"}}),
		func(_ int, answer string) bool { return strings.Contains(answer, "seen") })
}

// object returns the body with this metadata.
func (k *mutatedKind) object(metadata tree) string {
	var out tree
	if err := json.Unmarshal([]byte(k.body), &out); err != nil {
		return err.Error()
	}
	out["metadata"] = metadata
	text, err := json.Marshal(out)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// await sends a request to both servers until the answer is as expected.
func (f *mutatingFuzz) await(t *testing.T, method, path, body string, done func(int, string) bool) {
	t.Helper()
	for _, s := range []*apiServer{f.reference, f.keelson} {
		deadline := time.Now().Add(time.Minute)
		for {
			code, answer := s.must(t, method, path, jsonType, jsonType, []byte(body))
			if done(code, string(answer)) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s %s %s is answered %d %s for a minute", method, path, body, code, answer)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
}

// sentinel creates a policy that shows by its effect that all policies before it have one.
func (f *mutatingFuzz) sentinel(t *testing.T, name, resource, group, expression string) {
	t.Helper()
	k := mutatedKind{group: group, resource: resource}
	policy := f.policyOf(name, &k, []any{applyMutation(expression)})
	for _, s := range []*apiServer{f.reference, f.keelson} {
		for path, body := range map[string]any{mutatingPolicies: policy, mutatingBindings: tree{
			"metadata": tree{"name": name}, "spec": tree{"policyName": name},
		}} {
			text, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			if code, answer := s.must(t, http.MethodPost, path, jsonType, jsonType, text); code != http.StatusCreated {
				t.Fatalf("%s: %d %s", text, code, answer)
			}
		}
	}
}

func applyMutation(expression string) tree {
	return tree{"patchType": "ApplyConfiguration", "applyConfiguration": tree{"expression": expression}}
}

// policyOf returns a policy about the objects of a kind that have the label "case" with its name.
func (f *mutatingFuzz) policyOf(name string, k *mutatedKind, mutations []any) tree {
	return tree{"metadata": tree{"name": name}, "spec": tree{
		"matchConstraints": tree{
			"resourceRules": []any{tree{
				"apiGroups": []any{k.group}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE", "UPDATE"},
				"resources": []any{k.resource},
			}},
			"objectSelector": tree{"matchLabels": tree{"case": name}},
		},
		"mutations": mutations, "reinvocationPolicy": "Never",
	}}
}

// batch creates policies, waits until they have an effect, and sends writes to each.
func (f *mutatingFuzz) batch(t *testing.T, first int) {
	t.Helper()
	type one struct {
		name, about string
		kind        *mutatedKind
	}
	var all []one
	for i := range policyBatch {
		k := &f.kinds[f.rng.IntN(len(f.kinds))]
		name := fmt.Sprintf("c%d", first+i)
		policy, binding := f.random(name, k)
		text, err := json.Marshal([]any{policy, binding})
		if err != nil {
			t.Fatal(err)
		}
		if f.both(t, "", http.MethodPost, mutatingPolicies, policy, jsonType) == http.StatusCreated &&
			f.both(t, "", http.MethodPost, mutatingBindings, binding, jsonType) == http.StatusCreated {
			all = append(all, one{name, string(text), k})
		}
	}
	last := fmt.Sprintf("s%d", first)
	f.sentinel(t, last, "configmaps", "", "Object{data: {'seen': 'yes'}}")
	f.await(t, http.MethodPost, "/api/v1/namespaces/m/configmaps?dryRun=All",
		`{"metadata":{"name":"x","labels":{"case":"`+last+`"}}}`,
		func(_ int, answer string) bool { return strings.Contains(answer, "seen") })
	for _, c := range all {
		labels := tree{"case": c.name}
		var body, change tree
		_ = json.Unmarshal([]byte(c.kind.object(tree{"name": "x", "labels": labels})), &body)
		f.both(t, c.about, http.MethodPost, c.kind.path+"?dryRun=All", body, jsonType)
		change = tree{"metadata": tree{"labels": labels, "annotations": tree{"changed": "yes"}}}
		f.both(t, c.about, http.MethodPatch, c.kind.path+"/base?dryRun=All", change, mergeType)
		if f.rng.IntN(3) == 0 {
			body["metadata"].(tree)["name"] = "base"
			f.both(t, c.about, http.MethodPut, c.kind.path+"/base?dryRun=All", body, jsonType)
		}
		if f.rng.IntN(4) == 0 {
			var apply tree
			_ = json.Unmarshal([]byte(c.kind.object(tree{"name": "applied", "labels": labels})), &apply)
			apply["apiVersion"], apply["kind"] = c.kind.typeMeta()
			f.both(t, c.about, http.MethodPatch, c.kind.path+"/applied?dryRun=All&fieldManager=f", apply, "application/apply-patch+yaml")
		}
	}
	for _, c := range append(all, one{name: last}) {
		for _, s := range []*apiServer{f.reference, f.keelson} {
			_, _ = s.must(t, http.MethodDelete, mutatingBindings+"/"+c.name, jsonType, "", nil)
			_, _ = s.must(t, http.MethodDelete, mutatingPolicies+"/"+c.name, jsonType, "", nil)
		}
	}
}

func (k *mutatedKind) typeMeta() (apiVersion, kind string) {
	apiVersion = "v1"
	if k.group != "" {
		apiVersion = k.group + "/v1"
	}
	return apiVersion, map[string]string{
		"configmaps": "ConfigMap", "pods": "Pod", "deployments": "Deployment", "services": "Service", "things": "Thing",
	}[k.resource]
}

// random returns a random policy about a kind, and its binding.
func (f *mutatingFuzz) random(name string, k *mutatedKind) (policy, binding tree) {
	var mutations []any
	for range oneOf(f.rng, 1, 1, 1, 2, 3) {
		if f.rng.IntN(2) == 0 {
			mutations = append(mutations, applyMutation(f.configuration(k)))
		} else {
			mutations = append(mutations, tree{"patchType": "JSONPatch", "jsonPatch": tree{"expression": f.operations(k)}})
		}
	}
	policy = f.policyOf(name, k, mutations)
	spec := policy["spec"].(tree)
	// Policies whose mutations can be repeated have the same result however often kube-apiserver repeats them.
	spec["reinvocationPolicy"] = oneOf(f.rng, "Never", "IfNeeded")
	if f.rng.IntN(4) == 0 {
		spec["failurePolicy"] = "Ignore"
	}
	spec["variables"] = []any{
		tree{"name": "text", "expression": oneOf(f.rng, "'v-' + object.metadata.name", "request.operation", "string(1.5)", "'x'")},
		tree{"name": "broken", "expression": "object.none.x"},
		tree{"name": "number", "expression": oneOf(f.rng, "1", "size(object.metadata.labels)", "3 / 2", "5")},
		tree{"name": "list", "expression": "['a', variables.text]"},
	}
	if f.rng.IntN(3) == 0 {
		spec["matchConditions"] = []any{tree{"name": "a", "expression": oneOf(f.rng, "true", "object.metadata.name == 'x'",
			"request.operation == 'UPDATE'", "object.none.x", "oldObject == null", "false", "namespaceObject == null",
			"authorizer.group('').resource('pods').check('get').allowed()", "request.resource.resource != ''")}}
	}
	bound := tree{"policyName": name}
	if f.rng.IntN(4) == 0 {
		spec["paramKind"] = tree{"apiVersion": "v1", "kind": oneOf(f.rng, "ConfigMap", "ConfigMap", "Nothing")}
		ref := tree{"parameterNotFoundAction": oneOf(f.rng, "Allow", "Deny")}
		switch f.rng.IntN(3) {
		case 0:
			ref["name"] = oneOf(f.rng, "p1", "none")
		case 1:
			ref["selector"] = tree{"matchLabels": tree{"use": oneOf(f.rng, "yes", "no")}}
		case 2:
			ref["name"], ref["namespace"] = "p2", oneOf(f.rng, "m", "default")
		}
		bound["paramRef"] = ref
		spec["mutations"] = append(mutations, applyMutation("Object{metadata: Object.metadata{annotations: {'p-' + "+
			"string(params.metadata.name): string(params.data.a)}}}"))
	}
	if f.rng.IntN(5) == 0 {
		bound["matchResources"] = tree{"namespaceSelector": tree{"matchLabels": tree{"team": oneOf(f.rng, "blue", "red")}}}
	}
	return policy, tree{"metadata": tree{"name": name}, "spec": bound}
}

// configuration returns a random expression of type ApplyConfiguration.
func (f *mutatingFuzz) configuration(k *mutatedKind) string {
	if f.rng.IntN(3) == 0 {
		return oneOf(f.rng, commonConfigurations()...)
	}
	return oneOf(f.rng, k.configurations...)
}

func commonConfigurations() []string {
	metadata := []string{
		"labels: {'l': 'x'}", "annotations: {'n': string(variables.number)}", "finalizers: ['a.b/c']", "name: 'other'",
		"namespace: 'other'", "labels: {'bad key!': 'x'}", "labels: {'case': 'none'}", "managedFields: []", "generation: 5",
		"uid: 'x'", "resourceVersion: '5'", "generateName: 'g'", "selfLink: 's'", "labels: {}", "labels: null",
		"deletionTimestamp: '2020-01-01T00:00:00Z'", "creationTimestamp: timestamp('2020-01-01T00:00:00Z')", "annotations: {'a': 1}",
		"ownerReferences: [Object.metadata.ownerReferences{uid: 'u', name: 'n', kind: 'k', apiVersion: 'v1'}]",
		"ownerReferences: [Object.metadata.ownerReferences{name: 'n'}]", "annotations: {1: 'a'}", "nothing: 1",
		"?labels: optional.of({'o': 'p'})", "?labels: optional.none()", "annotations: object.metadata.labels",
		"annotations: {'x': variables.text, 'y': request.userInfo.username}", "finalizers: variables.list",
		"finalizers: [1]", "finalizers: 'a'", "annotations: {'k': namespaceObject.metadata.labels.team}",
		"annotations: {'k': variables.broken}", "labels: {'a': 'b', 'c': 'd', 'e': 'f'}", "annotations: ['a']",
	}
	out := []string{
		"Object{}", "object.metadata.name == 'x' ? Object{} : Object{nothing: 1}", "Object{metadata: Object.spec{}}",
		"Object{metadata: Object{}}", "Object{apiVersion: 'v2', kind: 'x'}", "Object{kind: 1}", "Object{nothing: 1}",
		"Object.spec{}", "1", "object", "Object{metadata: null}", "Object{metadata: 'x'}", "Object{metadata: {'labels': {'a': 'b'}}}",
		"Object{metadata: Object.metadata{labels: {'a': 'b'}}, metadata: Object.metadata{}}", "Object {", "Object{metadata: object.metadata}",
		"dyn(Object{})", "[Object{}][0]", "variables.text == 'x' ? Object{} : Object{metadata: Object.metadata{labels: {'v': 'w'}}}",
	}
	for _, m := range metadata {
		out = append(out, "Object{metadata: Object.metadata{"+m+"}}")
	}
	return out
}

// operations returns a random expression of type JSONPatch.
func (f *mutatingFuzz) operations(k *mutatedKind) string {
	var list []string
	for range 1 + f.rng.IntN(3) {
		op := oneOf(f.rng, "add", "add", "add", "replace", "remove", "test", "move", "copy", "bad", "")
		parts := []string{"op: '" + op + "'"}
		if f.rng.IntN(20) > 0 {
			parts = append(parts, "path: "+f.place(k))
		}
		switch {
		case op == "move" || op == "copy":
			parts = append(parts, "from: "+f.place(k))
		case op != "remove" && f.rng.IntN(20) > 0:
			parts = append(parts, "value: "+oneOf(f.rng, patchValues()...))
		}
		list = append(list, "JSONPatch{"+strings.Join(parts, ", ")+"}")
	}
	expression := "[" + strings.Join(list, ", ") + "]"
	return oneOf(f.rng, expression, expression, expression, "object.metadata.name == 'x' ? "+expression+" : []")
}

func (f *mutatingFuzz) place(k *mutatedKind) string {
	common := []string{
		"/metadata/labels/x", "/metadata/annotations", "/metadata/annotations/a", "/metadata/labels/case", "/metadata/finalizers",
		"/metadata/finalizers/-", "/metadata/name", "/metadata/namespace", "/kind", "/apiVersion", "", "/", "/nothing", "metadata",
		"/metadata/labels", "/metadata/managedFields", "/metadata/generation", "/metadata/uid",
	}
	if f.rng.IntN(12) == 0 {
		return "'/metadata/labels/' + jsonpatch.escapeKey('a.b/c')"
	}
	if f.rng.IntN(3) == 0 {
		return "'" + oneOf(f.rng, common...) + "'"
	}
	return "'" + oneOf(f.rng, k.places...) + "'"
}

func patchValues() []string {
	return []string{
		"'x'", "'x'", "'y'", "1", "2", "-1", "1.5", "true", "null", "{'a': 'b'}", "{'a': 'b'}", "['a']", "['a', 'b']", "{}", "[]",
		"variables.text", "variables.number", "variables.list", "variables.broken", "object.metadata.name", "object.metadata.labels",
		"Object.x{a: 'b'}", "Object{a: 'b'}", "Object.metadata{a: Object.metadata.a{b: 'c'}}", "Object.a{b: Object.c{}}",
		"timestamp('2020-01-01T00:00:00Z')", "duration('1h')", "b'abc'", "9007199254740993", "1u", "[1, 2]", "{'a': 1}",
		"[Object{a: 'b'}]", "{'a': Object{}}", "Object{a: null}", "Object{a: [1]}", "Object{a: b'x'}", "type(1)", "optional.of('x')",
		"optional.none()", "request.userInfo", "request.userInfo.groups", "request.kind", "request", "{'a': [request.resource]}", "request.object", "oldObject", "namespaceObject.metadata.name",
		"[{'name': 'e', 'image': 'i'}]", "{'name': 'e', 'image': 'j:1'}", "'MTIz'", "'80'", "quantity('1')", "url('http://a')",
	}
}

func mutatedKinds() []mutatedKind {
	const containers = `"containers":[{"name":"c","image":"i:1","ports":[{"containerPort":80}],"env":[{"name":"E","value":"v"}]}]`
	pod := func(path string) []string {
		object := "Object." + path
		return []string{
			"containers: [" + object + ".containers{name: 'c', image: 'j:2'}]", "nodeName: 'n'", "hostNetwork: true",
			"containers: [" + object + ".containers{name: 'e', image: 'j:2', args: ['a', 'b']}]",
			"containers: [" + object + ".containers{name: 'e', image: 'j:2'}]", "containers: [" + object + ".containers{name: 'e'}]",
			"containers: [" + object + ".containers{image: 'e'}]", "containers: []", "containers: null", "terminationGracePeriodSeconds: 5",
			"containers: [" + object + ".containers{name: 'c', ports: [" + object + ".containers.ports{containerPort: 81}]}]",
			"containers: [" + object + ".containers{name: 'c', ports: [" + object + ".containers.ports{containerPort: 80, name: 'h'}]}]",
			"containers: [" + object + ".containers{name: 'c', env: [" + object + ".containers.env{name: 'E', value: 'w'}, " + object +
				".containers.env{name: 'F'}]}]",
			"containers: [" + object + ".containers{name: 'c', resources: " + object + ".containers.resources{limits: {'cpu': '1'}}}]",
			"containers: [" + object + ".containers{name: 'c', resources: " + object + ".containers.resources{limits: {'cpu': 1}}}]",
			"containers: [" + object + ".containers.item{name: 'c'}]", "initContainers: [" + object + ".initContainers{name: 's', " +
				"image: 'proxy', restartPolicy: 'Always'}]", "initContainers: [" + object + ".initContainers{name: 's', image: 'a'}, " +
				object + ".initContainers{name: 's', image: 'b'}]", "tolerations: [" + object + ".tolerations{operator: 'Exists'}]",
			"nodeSelector: {'a': 'b'}", "securityContext: " + object + ".securityContext{runAsUser: 5}", "dnsPolicy: 'Default'",
			"securityContext: " + object + ".securityContext{runAsUser: -5}", "activeDeadlineSeconds: 1.5", "priority: 'a'",
			"volumes: [" + object + ".volumes{name: 'v', emptyDir: " + object + ".volumes.emptyDir{}}]", "serviceAccountName: 'default'",
			"volumes: [" + object + ".volumes{name: 'v'}]", "affinity: " + object + ".affinity{}", "restartPolicy: 'Never'",
			"imagePullSecrets: [" + object + ".imagePullSecrets{name: 's'}]", "terminationGracePeriodSeconds: 5u",
			"hostAliases: [" + object + ".hostAliases{ip: '1.2.3.4', hostnames: ['a']}]", "containers: ['a']", "nothing: 'a'",
			"containers: object." + path + ".containers.map(c, " + object + ".containers{name: c.name, image: 'r/' + c.image})",
			"topologySpreadConstraints: [" + object + ".topologySpreadConstraints{maxSkew: 1, topologyKey: 'k', whenUnsatisfiable: " +
				"'ScheduleAnyway'}]", "overhead: {'cpu': '1'}", "schedulerName: variables.text", "enableServiceLinks: false",
		}
	}
	wrap := func(before string, members []string, after string) (out []string) {
		for _, m := range members {
			out = append(out, before+m+after)
		}
		return out
	}
	thing := []string{
		"count: 3", "count: -3", "count: '3'", "count: variables.number", "name: 'x'", "name: null", "port: 80", "port: 'a'", "port: 1.5",
		"free: {'a': 'b'}", "free: Object.spec.free{a: Object.spec.free.a{b: [1, 2]}}", "free: Object.spec.free{a: null}", "set: ['a']",
		"free: Object.spec.free{a: timestamp('2020-01-01T00:00:00Z')}", "free: Object.spec.free{a: b'x'}", "free: Object.spec.free{a: 1u}",
		"free: Object.spec.free{a: 1.5, b: 2.0, c: duration('1h')}", "set: ['a', 'a']", "set: ['x', 'y']", "set: [1]", "plain: ['a']",
		"plain: []", "rules: [Object.spec.rules{k: 'a', v: 'z'}]", "rules: [Object.spec.rules{k: 'n'}]", "rules: [Object.spec.rules{}]",
		"rules: [Object.spec.rules{k: 'a', n: 1}]", "rules: [Object.spec.rules{k: 'a', n: 1.5}]", "rules: [Object.spec.rules{k: 'a', x: 1}]",
		"rules: []", "rules: {'k': 'a'}", "whole: Object.spec.whole{a: 'b'}", "whole: {'a': 'b'}", "labels: {'a': 'c', 'n': 'm'}",
		"labels: {'a': 1}", "labels: Object.spec.labels{a: 'b'}", "nothing: 1", "whole: Object.spec.whole{a: 'b'}, plain: ['c']",
		"rules: object.spec.rules.map(r, Object.spec.rules{k: r.k, v: 'mapped'})", "set: variables.list", "free: [1]",
	}
	template := `"template":{"metadata":{"labels":{"a":"b"}},"spec":{` + containers + `}}`
	return []mutatedKind{
		{"", "configmaps", "/api/v1/namespaces/m/configmaps", `{"data":{"a":"b"}}`, []string{
			"Object{data: {'k': 'v'}}", "Object{data: {'a': object.metadata.name}}", "Object{binaryData: {'b': 'YQ=='}}", "Object{data: null}",
			"Object{binaryData: {'b': b'a'}}", "Object{immutable: true}", "Object{immutable: 'true'}", "Object{data: {'k': 1}}",
			"Object{data: {'bad key': 'x'}}", "Object{data: object.data}", "Object{?data: has(object.data) ? optional.of(object.data) : optional.none()}",
			"Object{data: oldObject == null ? {'old': 'none'} : {'old': oldObject.metadata.name}}", "Object{data: Object.data{x: 'y'}}",
			"Object{data: {'k': variables.text}}", "Object{data: variables.list}", "Object{data: {'k': variables.broken}}", "Object{data: {}}",
			"Object{data: {'t': string(object.metadata.labels)}}", "Object{binaryData: {'b': '!'}}",
		}, []string{"/data", "/data/a", "/data/b", "/data/-", "/binaryData", "/immutable", "/data/a/b"}},
		{"", "pods", "/api/v1/namespaces/m/pods", `{"spec":{"automountServiceAccountToken":false,` + containers + `}}`,
			wrap("Object{spec: Object.spec{", pod("spec"), "}}"), []string{
				"/spec/containers/0/image", "/spec/containers/-", "/spec/containers/1", "/spec/initContainers", "/spec/nodeSelector",
				"/spec/tolerations", "/spec/tolerations/-", "/spec/hostNetwork", "/spec/priority", "/spec/nothing", "/spec",
				"/spec/terminationGracePeriodSeconds", "/spec/containers/0/resources", "/status/phase", "/spec/containers/0/env/0/value",
			}},
		{"apps", "deployments", "/apis/apps/v1/namespaces/m/deployments",
			`{"spec":{"selector":{"matchLabels":{"a":"b"}},` + template + `}}`,
			append(wrap("Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{", pod("spec.template.spec"), "}}}}"),
				"Object{spec: Object.spec{replicas: 3}}", "Object{spec: Object.spec{replicas: '3'}}", "Object{spec: Object.spec{replicas: 3.0}}",
				"Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}", "Object{spec: Object.spec{paused: true}}",
				"Object{spec: Object.spec{strategy: Object.spec.strategy{type: 'Recreate'}}}", "Object{status: Object.status{replicas: 3}}",
				"Object{spec: Object.spec{strategy: Object.spec.strategy{rollingUpdate: Object.spec.strategy.rollingUpdate{maxSurge: 1}}}}",
				"Object{spec: Object.spec{strategy: Object.spec.strategy{rollingUpdate: Object.spec.strategy.rollingUpdate{maxSurge: '10%'}}}}",
			), []string{
				"/spec/replicas", "/spec/template/spec/containers/0/image", "/spec/template/metadata/labels/a", "/spec/selector", "/spec/paused",
				"/spec/template/metadata/annotations", "/spec/strategy/type", "/status/replicas", "/spec/template/spec/containers/-",
			}},
		{"", "services", "/api/v1/namespaces/m/services", `{"spec":{"clusterIP":"None","selector":{"a":"b"},"ports":[{"name":"n","port":80}]}}`,
			wrap("Object{spec: Object.spec{", []string{
				"ports: [Object.spec.ports{port: 81}]", "ports: [Object.spec.ports{port: 81, name: 'm'}]", "selector: {'a': 'c'}",
				"ports: [Object.spec.ports{port: 80, protocol: 'TCP', targetPort: 8080}]", "type: 'ExternalName', externalName: 'a.b'",
				"ports: [Object.spec.ports{port: 80, protocol: 'TCP', targetPort: 'x'}]", "publishNotReadyAddresses: true",
				"ports: [Object.spec.ports{port: 80, protocol: 'UDP', name: 'u'}]", "ports: [Object.spec.ports{port: 'a'}]",
				"sessionAffinity: 'ClientIP'", "ipFamilies: ['IPv4']", "externalIPs: ['1.2.3.4']", "ports: [Object.spec.ports{name: 'x'}]",
				"sessionAffinityConfig: Object.spec.sessionAffinityConfig{clientIP: Object.spec.sessionAffinityConfig.clientIP{timeoutSeconds: 5}}",
			}, "}}"), []string{
				"/spec/ports/0/port", "/spec/ports/0/targetPort", "/spec/ports/-", "/spec/selector", "/spec/selector/a", "/spec/type",
				"/spec/sessionAffinity", "/spec/clusterIP", "/spec/nothing", "/spec/ports",
			}},
		{"example.com", "things", "/apis/example.com/v1/namespaces/m/things", `{"apiVersion":"example.com/v1","kind":"Thing",` +
			`"spec":{"name":"n","port":1,"free":{"x":1},"set":["x"],"plain":["p"],"rules":[{"k":"a"}],"whole":{"a":"a"},"labels":{"a":"b"}}}`,
			wrap("Object{spec: Object.spec{", thing, "}}"), []string{
				"/spec/count", "/spec/name", "/spec/port", "/spec/free", "/spec/free/y", "/spec/set", "/spec/set/-", "/spec/plain/0", "/spec/rules/-",
				"/spec/rules/0/v", "/spec/rules/0/n", "/spec/whole/a", "/spec/labels/a", "/spec/nothing", "/spec", "/status",
			}},
	}
}

// subresources sends writes to subresources in a namespace whose policies are about these.
func (f *mutatingFuzz) subresources(t *testing.T) {
	t.Helper()
	for i, c := range []struct{ resource, group, path, method, body, mutation string }{
		{"deployments/scale", "apps", "/apis/apps/v1/namespaces/m/deployments/base/scale", http.MethodPatch, `{"spec":{"replicas":2}}`,
			"Object{spec: Object.spec{replicas: 5}}"},
		{"deployments/scale", "apps", "/apis/apps/v1/namespaces/m/deployments/base/scale", http.MethodPatch, `{"spec":{"replicas":2}}`,
			"[JSONPatch{op: 'replace', path: '/spec/replicas', value: 5}]"},
		{"deployments/status", "apps", "/apis/apps/v1/namespaces/m/deployments/base/status", http.MethodPatch,
			`{"status":{"replicas":2}}`, "Object{status: Object.status{replicas: 5}}"},
		{"pods/status", "", "/api/v1/namespaces/m/pods/base/status", http.MethodPatch, `{"status":{"phase":"Running"}}`,
			"Object{status: Object.status{message: object.status.phase}}"},
		{"pods/status", "", "/api/v1/namespaces/m/pods/base/status", http.MethodPatch, `{"status":{"phase":"Running"}}`,
			"Object{spec: Object.spec{hostNetwork: true}}"},
		{"pods/eviction", "", "/api/v1/namespaces/m/pods/base/eviction", http.MethodPost, `{"metadata":{"name":"base"}}`,
			"Object{metadata: Object.metadata{labels: {'a': 'b'}}}"},
		{"pods/eviction", "", "/api/v1/namespaces/m/pods/base/eviction", http.MethodPost, `{"metadata":{"name":"base"}}`,
			"[JSONPatch{op: 'replace', path: '/metadata/name', value: 'other'}]"},
		{"pods/binding", "", "/api/v1/namespaces/m/pods/base/binding", http.MethodPost,
			`{"metadata":{"name":"base"},"target":{"kind":"Node","name":"n"}}`, "Object{target: Object.target{kind: 'Other'}}"},
		{"pods/binding", "", "/api/v1/namespaces/m/pods/base/binding", http.MethodPost,
			`{"metadata":{"name":"base"},"target":{"kind":"Node","name":"n"}}`,
			"[JSONPatch{op: 'replace', path: '/target/kind', value: 'Other'}]"},
		{"serviceaccounts/token", "", "/api/v1/namespaces/m/serviceaccounts/default/token", http.MethodPost,
			`{"spec":{"expirationSeconds":700}}`, "Object{spec: Object.spec{expirationSeconds: 5}}"},
		{"serviceaccounts/token", "", "/api/v1/namespaces/m/serviceaccounts/default/token", http.MethodPost,
			`{"spec":{"expirationSeconds":700}}`, "[JSONPatch{op: 'replace', path: '/spec/expirationSeconds', value: 5}]"},
		{"things/status", "example.com", "/apis/example.com/v1/namespaces/m/things/base", http.MethodPatch, `{"spec":{"count":2}}`,
			"Object{spec: Object.spec{count: 5}}"},
		{"namespaces", "", "/api/v1/namespaces", http.MethodPost, `{"metadata":{"name":"new"}}`,
			"Object{metadata: Object.metadata{labels: {'n': string(namespaceObject == null) + string(has(request.namespace))}}}"},
		{"selfsubjectreviews", "authentication.k8s.io", "/apis/authentication.k8s.io/v1/selfsubjectreviews", http.MethodPost, `{}`,
			"Object{nothing: 1}"},
		{"*", "admissionregistration.k8s.io", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
			http.MethodPost, `{"metadata":{"name":"v"},"spec":{"policyName":"v","validationActions":["Deny"]}}`, "Object{nothing: 1}"},
	} {
		name := fmt.Sprint("sub", i)
		mutation := applyMutation(c.mutation)
		if strings.HasPrefix(c.mutation, "[") {
			mutation = tree{"patchType": "JSONPatch", "jsonPatch": tree{"expression": c.mutation}}
		}
		policy := f.policyOf(name, &mutatedKind{group: c.group, resource: c.resource}, []any{mutation})
		delete(policy["spec"].(tree)["matchConstraints"].(tree), "objectSelector")
		f.both(t, "", http.MethodPost, mutatingPolicies, policy, jsonType)
		f.both(t, "", http.MethodPost, mutatingBindings, tree{"metadata": tree{"name": name}, "spec": tree{"policyName": name}}, jsonType)
		last := "last-" + name
		f.sentinel(t, last, "configmaps", "", "Object{data: {'seen': 'yes'}}")
		f.await(t, http.MethodPost, "/api/v1/namespaces/m/configmaps?dryRun=All",
			`{"metadata":{"name":"x","labels":{"case":"`+last+`"}}}`,
			func(_ int, answer string) bool { return strings.Contains(answer, "seen") })
		contentType := jsonType
		if c.method == http.MethodPatch {
			contentType = mergeType
		}
		var body tree
		_ = json.Unmarshal([]byte(c.body), &body)
		f.both(t, c.mutation, c.method, c.path+"?dryRun=All", body, contentType)
		for _, s := range []*apiServer{f.reference, f.keelson} {
			for _, one := range []string{name, last} {
				_, _ = s.must(t, http.MethodDelete, mutatingBindings+"/"+one, jsonType, "", nil)
				_, _ = s.must(t, http.MethodDelete, mutatingPolicies+"/"+one, jsonType, "", nil)
			}
		}
	}
}
