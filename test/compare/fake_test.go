package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain makes the test also the program of both servers: with the argument fake-NAME it does what collectFlags and
// collectGates ask programs for.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && strings.HasPrefix(os.Args[1], "fake-") {
		os.Exit(fakeProgram(strings.TrimPrefix(os.Args[1], "fake-"), os.Args[2]))
	}
	os.Exit(m.Run())
}

func fakeProgram(name, arg string) int {
	if arg == "--help" {
		fmt.Println("Usage:\n  program [flags]\n\nGeneric flags:\n\n      --old int     DEPRECATED: long\n                    ago. (default 3)\n" +
			"      --both string   A text (default \"x\")\n  -v, --v Level   verbosity")
		if name == reference {
			fmt.Println("      --some strings   kube:HelpOnly=true|false (ALPHA - default=false)")
		}
		return 0
	}
	emulated := slices.Contains(os.Args, "--emulated-version=kube=1.36") // nothing is locked there
	if gate, ok := strings.CutPrefix(arg, "--feature-gates=Locked="); ok && name == reference && !emulated {
		fmt.Printf("cannot set feature gate Locked to %s, feature is locked to true\n", gate)
	}
	return 1
}

// differing are the lines that a comparison of the two servers prints.
const differing = `
discovery core/v1/configmaps/verbs: only kube-apiserver has "watch"
discovery example.com/v1beta1/widgets/subresources/scale: only Keelson: {"subresource":"scale"}
discovery example.com/v1beta1/widgets/storageVersionHash: kube-apiserver "` + widgetHashV1 + `", Keelson "` + widgetHashV1beta1 + `"
openapi v2/definitions/Widget/description: kube-apiserver "new", Keelson "old"
openapi v3/schemas/com.example.v1beta1.Widget/properties/extra: only kube-apiserver: {"type":"string"}
gates HelpOnly: only kube-apiserver: {"default":false,"locked":false,"metric":false,"stage":"ALPHA"}
gates Locked/locked: kube-apiserver true, Keelson false
gates Changed/stage: kube-apiserver "BETA", Keelson "ALPHA"
flags some: only kube-apiserver: {"deprecated":false}
roles known.txt:4: nothing does not occur any more: take the line out
roles rbac.authorization.k8s.io v1 ClusterRole/edit/rules/0/verbs: only kube-apiserver has "get"
flowcontrol flowcontrol.apiserver.k8s.io v1 FlowSchema/extra: only Keelson: {"metadata":{"name":"extra"}}
objects core v1 ConfigMap/default~1a/data/k: kube-apiserver "v", Keelson "w"
metrics requests_total/labels/code,verb: only kube-apiserver: true
metrics requests_total/labels/code: only Keelson: true
sample example.com v1beta1 Widget/(required fields)/object/status: only Keelson: {} (and with 2 other fields)
sample example.com v1beta1 Widget/spec.mode="A"/code: kube-apiserver 422, Keelson 201
sample example.com v1beta1 Widget/spec.mode="A"/causes: only kube-apiserver: {"spec.mode: FieldValueInvalid: bad":true}
stored example.com Widget: kube-apiserver "v1", Keelson "v1beta1"
discovery: 3 differences
openapi: 2 differences
gates: 3 differences
flags: 1 differences
roles: 1 differences, 1 lines of known.txt do not occur
flowcontrol: 1 differences
objects: 1 differences
warnings: no difference, 1 known
metrics: 2 differences
sample: 3 differences
stored: 1 differences
`

const widgetHashV1, widgetHashV1beta1 = "gIwvi5rymmg=", "3KMbXL6XZiI="

// TestHash checks the hashes above.
func TestHash(t *testing.T) {
	k := kind{group: "example.com", version: "v1beta1", kind: "Widget"}
	for version, hash := range map[string]string{"v1": widgetHashV1, "v1beta1": widgetHashV1beta1, "hash x": "x"} {
		if got := versionOfHash(k, hash); got != version {
			sum := sha256.Sum256([]byte("example.com/" + version + "/Widget"))
			t.Errorf("%s is of %s, want %s, which has %s", hash, got, version, base64.StdEncoding.EncodeToString(sum[:8]))
		}
	}
}

// newFakes starts two servers of a few resources that differ as the lines above say.
func newFakes(t *testing.T) *comparison {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func(name string) *server {
		s := httptest.NewTLSServer(fake{name == reference})
		t.Cleanup(s.Close)
		out := newServer(name, s.URL, "secret")
		out.program = []string{program, "fake-" + name}
		return out
	}
	c := &comparison{reference: start(reference), keelson: start(keelson), fields: defaultFields, pause: time.Millisecond}
	etcd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		value := []byte(`{"apiVersion":"example.com/v1","kind":"Widget"}`)
		_ = json.NewEncoder(w).Encode(map[string]any{"kvs": []any{
			map[string]any{"key": []byte("/registry/widgets/a"), "value": value},
			map[string]any{"key": []byte("/registry/number"), "value": []byte("7")},
		}})
	}))
	t.Cleanup(etcd.Close)
	c.reference.etcd = etcd.URL
	return c
}

// A fake is one of the two servers.
type fake struct{ reference bool }

// pick returns one of two texts, by the server.
func (f fake) pick(reference, keelson string) string {
	if f.reference {
		return reference
	}
	return keelson
}

func (f fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer secret" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	path := r.URL.Path
	if strings.Contains(r.Header.Get("Accept"), "apidiscovery") {
		path += " aggregated"
	}
	if r.Method != http.MethodGet {
		f.write(w, r)
		return
	}
	if path == "/apis/example.com/v1beta1/widgets" && f.reference {
		w.Header().Set("Warning", `299 - "old"`)
	}
	document, ok := f.documents()[path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = w.Write([]byte(document))
}

// resource is an entry of an aggregated document.
func resource(name, kind, scope, verbs, subresources string) string {
	return fmt.Sprintf(`{"resource":%q,"responseKind":{"kind":%q},"scope":%q,"verbs":[%s],"subresources":[%s]}`, name, kind, scope,
		verbs, subresources)
}

func aggregatedGroup(group, version string, resources ...string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"versions":[{"version":%q,"resources":[%s],"freshness":"Current"}]}`, group, version,
		strings.Join(resources, ","))
}

// documents returns the answers to GET by their paths.
func (f fake) documents() map[string]string {
	legacy := func(name, hash string) string {
		return fmt.Sprintf(`{"resources":[{"name":%q,"storageVersionHash":%q}]}`, name, hash)
	}
	hash := f.pick(widgetHashV1, widgetHashV1beta1)
	object := func(name, more string) string { return fmt.Sprintf(`{"metadata":{"name":%q%s}`, name, more) }
	return map[string]string{
		"/api aggregated": `{"items":[` + aggregatedGroup("", "v1",
			resource("configmaps", "ConfigMap", "Namespaced", f.pick(`"get","list","watch"`, `"get","list"`), "")) + `]}`,
		"/apis aggregated": `{"items":[` + strings.Join([]string{
			aggregatedGroup(rbacGroup, "v1", resource("clusterroles", "ClusterRole", "Cluster", `"list"`, "")),
			aggregatedGroup(flowGroup, "v1", resource("flowschemas", "FlowSchema", "Cluster", `"list"`, "")),
			aggregatedGroup("example.com", "v1beta1", resource("widgets", "Widget", "Cluster", `"create","get","list"`,
				f.pick("", `{"subresource":"scale"}`))),
		}, ",") + `]}`,
		"/apis":                      `{"groups":[{"name":"example.com","preferredVersion":{"version":"v1beta1"}}]}`,
		"/api/v1":                    legacy("configmaps", "c"),
		"/apis/" + rbacGroup + "/v1": legacy("clusterroles", "r"),
		"/apis/" + flowGroup + "/v1": legacy("flowschemas", "f"),
		"/apis/example.com/v1beta1":  legacy("widgets", hash),
		"/openapi/v2":                `{"definitions":{"Widget":{"description":"` + f.pick("new", "old") + `"}}}`,
		"/openapi/v3":                `{"paths":{"apis/example.com/v1beta1":{}}}`,
		"/openapi/v3/apis/example.com/v1beta1": `{"components":{"schemas":{
			"com.example.v1beta1.Widget":{"type":"object","x-kubernetes-group-version-kind":[{"group":"example.com","version":"v1beta1","kind":"Widget"}],
				"properties":{"spec":{"allOf":[{"$ref":"#/components/schemas/com.example.v1beta1.Spec"}]}` +
			f.pick(`,"extra":{"type":"string"}`, "") + `}},
			"com.example.v1beta1.Spec":{"type":"object","properties":{"color":{"type":"string"},"mode":{"type":"string","enum":["A","B"]},
				"sizes":{"type":"array","items":{"type":"integer"}}}}}},"paths":{}}`,
		"/metrics": "# HELP kubernetes_feature_enabled [BETA] gates\n# TYPE kubernetes_feature_enabled gauge\n" +
			`kubernetes_feature_enabled{name="Locked",stage=""} 1` + "\n" +
			`kubernetes_feature_enabled{name="Changed",stage="` + f.pick("BETA", "ALPHA") + `"} 0` + "\n" +
			"# HELP requests_total Requests\n# TYPE requests_total counter\nrequests_total{code=\"200\"" + f.pick(`,verb="get"`, "") + "} 1\n" +
			"# HELP unused Unused\n# TYPE unused " + f.pick("counter", "gauge") + "\n",
		"/api/v1/configmaps":                      `{"items":[` + object("a", `,"namespace":"default","uid":"`+f.pick("1", "2")+`"},"data":{"k":"`+f.pick("v", "w")+`"}`) + `]}`,
		"/apis/" + rbacGroup + "/v1/clusterroles": `{"items":[` + object("edit", `},"rules":[{"verbs":[`+f.pick(`"get","list"`, `"list"`)+`]}]`) + `]}`,
		"/apis/" + flowGroup + "/v1/flowschemas":  `{"items":[` + object("a", "}") + f.pick("", ","+object("extra", "}")) + `]}`,
		"/apis/example.com/v1beta1/widgets":       `{"items":[]}`,
	}
}

// write answers a POST. A Widget needs spec.color; kube-apiserver refuses spec.mode, and Keelson adds a status.
func (f fake) write(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body["kind"] != "Widget" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	refuse := func(field, reason, message string) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "details": map[string]any{
			"causes": []any{map[string]any{"field": field, "reason": reason, "message": message}},
		}})
	}
	switch {
	case dig(body, "spec", "color") == nil:
		refuse("spec.color", "FieldValueRequired", "Required value")
	case dig(body, "spec", "mode") != nil && f.reference:
		refuse("spec.mode", "FieldValueInvalid", "bad")
	default:
		if !f.reference {
			body["status"] = map[string]any{}
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(body)
	}
}
