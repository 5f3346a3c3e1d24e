package main

import (
	"fmt"
	"net/http"
	"strings"
)

// An admissionCase is one write whose answer, calls of webhooks and stored object are compared. NAME, NS, RV and OBJECTUID in its
// requests are the name and the namespace of its object, and the resourceVersion and uid that the object has before.
type admissionCase struct {
	name      string
	namespace string
	prepare   []request
	write     request
	replies   map[string]reply // of webhooks, by path
	look      string           // the object that is read afterwards
}

// The namespaces decide which webhooks and policies concern a write.
const (
	plainNamespace    = "adm"        // webhooks with failurePolicy Fail
	lenientNamespace  = "adm-ignore" // with failurePolicy Ignore
	policiesNamespace = "adm-policy" // and policies
)

const (
	jsonPatch      = "application/json-patch+json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

// An admittedKind is a kind of the section admission.
type admittedKind struct {
	name       string
	collection string // NS is the namespace
	head       string // the members apiVersion and kind
	content    string // the members of an object beside metadata
	changed    string // the same after a PUT
	merge      string // a merge patch, also as strategic patch
	json       string // a JSON patch
	status     string // a merge patch of the status; empty if there is none
	scale      bool
	few        bool // only the verbs that are cheap
	custom     bool
}

const (
	container  = `"containers":[{"name":"c","image":"i"}]`
	deployment = `"spec":{"replicas":%d,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{` + container + `}}}`
	// definitionSpec has a word for the names of the kind, which is NAME.
	definitionSpec = `"spec":{"group":"%s","scope":"Namespaced","names":{"plural":"NAME","kind":"KNAME"},"versions":[{"name":"v1","served":true,"storage":true,` +
		`"schema":{"openAPIV3Schema":{"type":"object"}}}]}`
)

var widgetHead = `"apiVersion":"adm.example.org/%s","kind":"Widget"`

func admittedKinds() []admittedKind {
	return []admittedKind{
		{name: "configmap", collection: "/api/v1/namespaces/NS/configmaps", head: `"apiVersion":"v1","kind":"ConfigMap"`,
			content: `"data":{"a":"1"}`, changed: `"data":{"a":"2"}`, merge: `{"data":{"a":"3"}}`, json: `[{"op":"add","path":"/data/b","value":"1"}]`},
		{name: "pod", collection: "/api/v1/namespaces/NS/pods", head: `"apiVersion":"v1","kind":"Pod"`,
			content: `"spec":{` + container + `}`, changed: `"spec":{"containers":[{"name":"c","image":"j"}]}`,
			merge: `{"spec":{"activeDeadlineSeconds":100}}`, json: `[{"op":"replace","path":"/spec/containers/0/image","value":"k"}]`,
			status: `{"status":{"phase":"Running"}}`},
		{name: "deployment", collection: "/apis/apps/v1/namespaces/NS/deployments", head: `"apiVersion":"apps/v1","kind":"Deployment"`,
			content: fmt.Sprintf(deployment, 1), changed: fmt.Sprintf(deployment, 2), merge: `{"spec":{"replicas":3}}`,
			json: `[{"op":"replace","path":"/spec/replicas","value":4}]`, status: `{"status":{"observedGeneration":1}}`, scale: true},
		{name: "lease", collection: "/apis/coordination.k8s.io/v1/namespaces/NS/leases", head: `"apiVersion":"coordination.k8s.io/v1","kind":"Lease"`,
			content: `"spec":{"holderIdentity":"a"}`, changed: `"spec":{"holderIdentity":"b"}`, merge: `{"spec":{"leaseDurationSeconds":5}}`,
			json: `[{"op":"add","path":"/spec/leaseTransitions","value":1}]`},
		{name: "namespace", collection: "/api/v1/namespaces", head: `"apiVersion":"v1","kind":"Namespace"`,
			content: `"spec":{}`, changed: `"spec":{"finalizers":["kubernetes"]}`, merge: `{"metadata":{"labels":{"l":"m"}}}`,
			json: `[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]`},
		{name: "definition", collection: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			head: `"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition"`, content: fmt.Sprintf(definitionSpec, "defs.example.org"),
			changed: fmt.Sprintf(definitionSpec, "defs.example.org"), merge: `{"metadata":{"labels":{"l":"m"}}}`,
			json: `[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]`, few: true},
		widgets("v1"), widgets("v2"),
	}
}

func widgets(version string) admittedKind {
	return admittedKind{name: "widget" + version, collection: "/apis/adm.example.org/" + version + "/namespaces/NS/widgets",
		head: fmt.Sprintf(widgetHead, version), content: `"spec":{"size":2,"replicas":1}`, changed: `"spec":{"size":3,"replicas":2}`,
		merge: `{"spec":{"note":"x"}}`, json: `[{"op":"replace","path":"/spec/size","value":4}]`, status: `{"status":{"replicas":1}}`, scale: true, custom: true}
}

const caseLabel = `"labels":{"case":"NAME"}`

func (k *admittedKind) object() string { return k.objectWith("", k.content) }

// objectWith returns an object with more members of metadata, and with other members beside it.
func (k *admittedKind) objectWith(meta, content string) string {
	name := "NAME"
	if k.few {
		name = "NAME.defs.example.org"
	}
	return `{` + k.head + `,"metadata":{"name":"` + name + `",` + caseLabel + meta + `},` + content + `}`
}

func (k *admittedKind) path() string {
	if k.few {
		return k.collection + "/NAME.defs.example.org"
	}
	return k.collection + "/NAME"
}

func (k *admittedKind) created() request {
	return request{method: http.MethodPost, path: k.collection + "?fieldManager=maker", body: k.object()}
}

// An admittedWrite is a write of a kind.
type admittedWrite struct {
	name    string
	prepare []request
	write   request
}

func (k *admittedKind) writes() []admittedWrite {
	made, path := []request{k.created()}, k.path()
	var out []admittedWrite
	add := func(name string, prepare []request, method, path, contentType, body string) {
		out = append(out, admittedWrite{name, prepare, request{method: method, path: path, contentType: contentType, body: body}})
	}
	rv := `,"resourceVersion":"RV"`
	add("create", nil, http.MethodPost, k.collection, "", k.object())
	add("put", made, http.MethodPut, path, "", k.objectWith(rv, k.changed))
	add("merge", made, http.MethodPatch, path, mergePatch, k.merge)
	add("apply-creates", nil, http.MethodPatch, path+"?fieldManager=m&force=true", applyPatch, k.object())
	add("delete", made, http.MethodDelete, path, "", "")
	if k.few {
		add("delete-uid", made, http.MethodDelete, path, "", `{"preconditions":{"uid":"x"}}`)
		return out
	}
	other := strings.Replace(k.object(), `"name":"NAME"`, `"generateName":"gen-"`, 1)
	add("create-generates", nil, http.MethodPost, k.collection, "", other)
	add("create-exists", made, http.MethodPost, k.collection, "", k.object())
	add("create-uid", nil, http.MethodPost, k.collection, "", k.objectWith(`,"uid":"x","selfLink":"/x","deletionTimestamp":"2020-01-01T00:00:00Z","generation":7`, k.content))
	add("create-version", nil, http.MethodPost, k.collection, "", k.objectWith(`,"resourceVersion":"5"`, k.content))
	add("put-same", made, http.MethodPut, path, "", k.objectWith(rv, k.content))
	add("put-creates", nil, http.MethodPut, path, "", k.object())
	add("put-creates-uid", nil, http.MethodPut, path, "", k.objectWith(`,"uid":"x"`, k.content))
	add("put-uid", made, http.MethodPut, path, "", k.objectWith(rv+`,"uid":"x"`, k.changed))
	add("put-right-uid", made, http.MethodPut, path, "", k.objectWith(rv+`,"uid":"OBJECTUID"`, k.changed))
	add("put-conflict", made, http.MethodPut, path, "", k.objectWith(`,"resourceVersion":"1"`, k.changed))
	add("put-no-version", made, http.MethodPut, path, "", k.objectWith(``, k.changed))
	add("put-name", made, http.MethodPut, path, "", strings.Replace(k.objectWith(rv, k.changed), "NAME", "other", 1))
	add("put-namespace", made, http.MethodPut, path, "", k.objectWith(rv+`,"namespace":"other"`, k.changed))
	add("json", made, http.MethodPatch, path, jsonPatch, k.json)
	add("json-uid", made, http.MethodPatch, path, jsonPatch, `[{"op":"add","path":"/metadata/uid","value":"x"}]`)
	add("merge-uid", made, http.MethodPatch, path, mergePatch, `{"metadata":{"uid":"x"}}`)
	add("merge-version", made, http.MethodPatch, path, mergePatch, `{"metadata":{"resourceVersion":"1"}}`)
	add("merge-nothing", made, http.MethodPatch, path, mergePatch, `{}`)
	add("merge-missing", nil, http.MethodPatch, path, mergePatch, k.merge)
	add("strategic", made, http.MethodPatch, path, strategicPatch, k.merge)
	applied := request{method: http.MethodPatch, path: path + "?fieldManager=m&force=true", contentType: applyPatch, body: k.object()}
	add("apply-updates", made, http.MethodPatch, applied.path, applyPatch, k.objectWith("", k.changed))
	add("apply-same", []request{applied}, http.MethodPatch, applied.path, applyPatch, k.object())
	add("apply-conflicts", made, http.MethodPatch, path+"?fieldManager=m", applyPatch, k.objectWith("", k.changed))
	add("apply-creates-uid", nil, http.MethodPatch, applied.path, applyPatch, k.objectWith(`,"uid":"x"`, k.content))
	add("apply-creates-no-force", nil, http.MethodPatch, path+"?fieldManager=m", applyPatch, k.object())
	add("delete-grace-0", made, http.MethodDelete, path+"?gracePeriodSeconds=0", "", "")
	add("delete-grace-7", made, http.MethodDelete, path, "", `{"gracePeriodSeconds":7}`)
	add("delete-grace-negative", made, http.MethodDelete, path+"?gracePeriodSeconds=-1", "", "")
	add("delete-foreground", made, http.MethodDelete, path, "", `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Foreground"}`)
	add("delete-orphan", made, http.MethodDelete, path+"?propagationPolicy=Orphan", "", "")
	add("delete-missing", nil, http.MethodDelete, path, "", "")
	add("delete-uid", made, http.MethodDelete, path, "", `{"preconditions":{"uid":"x"}}`)
	held := []request{{method: http.MethodPost, path: k.collection, body: k.objectWith(`,"finalizers":["example.org/f"]`, k.content)}}
	add("delete-held", held, http.MethodDelete, path, "", "")
	add("delete-again", append(held[:1:1], request{method: http.MethodDelete, path: path}), http.MethodDelete, path, "", "")
	add("release", append(held[:1:1], request{method: http.MethodDelete, path: path}), http.MethodPatch, path, mergePatch, `{"metadata":{"finalizers":null}}`)
	if k.name != "namespace" {
		add("deletecollection", made, http.MethodDelete, k.collection+"?labelSelector=case%3DNAME", "", "")
		add("deletecollection-held", held, http.MethodDelete, k.collection+"?labelSelector=case%3DNAME", "", "")
	}
	if k.status != "" {
		add("status-merge", made, http.MethodPatch, path+"/status", mergePatch, k.status)
		add("status-nothing", made, http.MethodPatch, path+"/status", mergePatch, `{}`)
		status := strings.TrimSuffix(strings.TrimPrefix(k.status, "{"), "}")
		add("status-put", made, http.MethodPut, path+"/status", "", k.objectWith(rv, k.content+","+status))
		add("status-put-uid", made, http.MethodPut, path+"/status", "", k.objectWith(rv+`,"uid":"x"`, k.content+","+status))
		add("status-apply", made, http.MethodPatch, path+"/status?fieldManager=m&force=true", applyPatch, k.objectWith("", status))
		add("status-missing", nil, http.MethodPatch, path+"/status", mergePatch, k.status)
	}
	if k.scale {
		scale := `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"NAME","namespace":"NS"%s},"spec":{"replicas":%d}}`
		add("scale-put", made, http.MethodPut, path+"/scale", "", fmt.Sprintf(scale, "", 5))
		add("scale-put-version", made, http.MethodPut, path+"/scale", "", fmt.Sprintf(scale, rv, 5))
		add("scale-put-uid", made, http.MethodPut, path+"/scale", "", fmt.Sprintf(scale, `,"uid":"x"`, 5))
		add("scale-put-same", made, http.MethodPut, path+"/scale", "", fmt.Sprintf(scale, "", 1))
		add("scale-merge", made, http.MethodPatch, path+"/scale", mergePatch, `{"spec":{"replicas":6}}`)
		add("scale-json", made, http.MethodPatch, path+"/scale", jsonPatch, `[{"op":"replace","path":"/spec/replicas","value":7}]`)
		add("scale-apply", made, http.MethodPatch, path+"/scale?fieldManager=m&force=true", applyPatch, fmt.Sprintf(scale, "", 8))
		add("scale-missing", nil, http.MethodPatch, path+"/scale", mergePatch, `{"spec":{"replicas":6}}`)
	}
	if k.custom {
		bare := []request{{method: http.MethodPost, path: k.collection, body: k.objectWith("", `"spec":{}`)}}
		add("scale-unset", bare, http.MethodPatch, path+"/scale", mergePatch, `{"spec":{"replicas":6}}`)
		add("scale-unset-put", bare, http.MethodPut, path+"/scale", "", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"NAME","namespace":"NS"},"spec":{"replicas":2}}`)
		add("scale-unset-nothing", bare, http.MethodPatch, path+"/scale", mergePatch, `{}`)
		add("create-unknown", nil, http.MethodPost, k.collection, "", k.objectWith("", `"spec":{"size":1,"zzz":1},"zzz":{}`))
	}
	if k.name == "pod" {
		binding := `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"NAME"%s},"target":{"kind":"Node","name":"n"}}`
		add("binding", made, http.MethodPost, path+"/binding", "", fmt.Sprintf(binding, ""))
		add("binding-annotated", made, http.MethodPost, path+"/binding", "", fmt.Sprintf(binding, `,"annotations":{"a":"b"},"labels":{"c":"d"}`))
		add("binding-missing", nil, http.MethodPost, path+"/binding", "", fmt.Sprintf(binding, ""))
		add("bindings", made, http.MethodPost, "/api/v1/namespaces/NS/bindings", "", fmt.Sprintf(binding, ""))
		eviction := `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"NAME","namespace":"NS"}%s}`
		add("eviction", made, http.MethodPost, path+"/eviction", "", fmt.Sprintf(eviction, ""))
		add("eviction-options", made, http.MethodPost, path+"/eviction", "", fmt.Sprintf(eviction, `,"deleteOptions":{"gracePeriodSeconds":3}`))
		add("eviction-missing", nil, http.MethodPost, path+"/eviction", "", fmt.Sprintf(eviction, ""))
		bound := append(made[:1:1], request{method: http.MethodPost, path: path + "/binding", body: fmt.Sprintf(binding, "")})
		for _, grace := range []string{"", "?gracePeriodSeconds=7", "?gracePeriodSeconds=0", "?gracePeriodSeconds=-1"} {
			add("delete-bound"+grace, bound, http.MethodDelete, path+grace, "", "")
		}
		sooner := append(bound[:2:2], request{method: http.MethodDelete, path: path})
		add("delete-sooner", sooner, http.MethodDelete, path+"?gracePeriodSeconds=1", "", "")
		add("delete-at-once", sooner, http.MethodDelete, path+"?gracePeriodSeconds=0", "", "")
		add("delete-waits", sooner, http.MethodDelete, path, "", "")
		add("deletecollection-bound", bound, http.MethodDelete, k.collection+"?labelSelector=case%3DNAME", "", "")
		add("eviction-bound", bound, http.MethodPost, path+"/eviction", "", fmt.Sprintf(eviction, ""))
		add("exec", made, http.MethodPost, path+"/exec?command=ls&container=c&stdout=true", "", "")
		add("ephemeral", made, http.MethodPatch, path+"/ephemeralcontainers", strategicPatch, `{"spec":{"ephemeralContainers":[{"name":"e","image":"i"}]}}`)
		account := []request{{method: http.MethodPost, path: "/api/v1/namespaces/NS/serviceaccounts", body: `{"metadata":{"name":"NAME"}}`}}
		add("token", account, http.MethodPost, "/api/v1/namespaces/NS/serviceaccounts/NAME/token", "",
			`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":["a"],"expirationSeconds":3600}}`)
	}
	return out
}

// with returns a request with another member of its query.
func (r request) with(query string) request {
	if strings.Contains(r.path, "?") {
		r.path += "&" + query
	} else {
		r.path += "?" + query
	}
	return r
}

// admissionCases returns all cases. Their order and number are always the same.
func admissionCases() []admissionCase {
	var out []admissionCase
	labelled := map[string]reply{"/second": patched(`[{"op":"add","path":"/metadata/annotations","value":{"by":"second"}}]`)}
	ways := []struct {
		name, namespace string
		replies         map[string]reply
		change          func(request) request
	}{
		{"", plainNamespace, nil, func(r request) request { return r }},
		{" patched", plainNamespace, labelled, func(r request) request { return r }},
		{" dry-run", plainNamespace, nil, func(r request) request { return r.with("dryRun=All") }},
		{" as", plainNamespace, labelled, func(r request) request { r.as = impersonated; return r.with("fieldValidation=Strict") }},
		{" policies", policiesNamespace, nil, func(r request) request { return r }},
	}
	kinds := admittedKinds()
	for i := range kinds {
		k := &kinds[i]
		for _, w := range k.writes() {
			for _, way := range ways {
				if way.namespace == policiesNamespace && !strings.Contains(k.collection, "NS") {
					continue
				}
				out = append(out, admissionCase{"writes/" + k.name + " " + w.name + way.name, way.namespace, w.prepare, way.change(w.write), way.replies, k.path()})
			}
		}
	}
	return append(append(out, oddCases(kinds)...), managersCases(kinds)...)
}

// oddTargets are writes that odd patches are tried on.
var oddTargets = map[string][]string{
	"configmap":  {"create", "put", "merge", "apply-creates", "apply-updates", "delete", "deletecollection"},
	"pod":        {"create", "status-merge", "binding", "eviction"},
	"deployment": {"scale-put", "create"},
	"lease":      {"put-creates"},
	"widgetv1":   {"create", "merge", "scale-merge", "status-put", "delete"},
	"widgetv2":   {"put", "apply-creates", "status-merge"},
}

// oddCases returns the cases in which a webhook answers oddly.
func oddCases(kinds []admittedKind) (out []admissionCase) {
	for i := range kinds {
		k := &kinds[i]
		for _, w := range k.writes() {
			for n, target := range oddTargets[k.name] {
				if target != w.name {
					continue
				}
				add := func(what, namespace, path string, r reply) {
					out = append(out, admissionCase{"odd/" + k.name + " " + w.name + " " + what, namespace, w.prepare, w.write, map[string]reply{path: r}, k.path()})
				}
				for _, o := range oddPatches() {
					add(o.name, plainNamespace, "/first", patched(o.body))
					if n == 0 {
						add(o.name+" ignored", lenientNamespace, "/first", patched(o.body))
					}
				}
				if k.name != "configmap" && k.name != "widgetv1" || n != 0 && w.name != "delete" {
					continue
				}
				for _, o := range oddReplies() {
					add(o.name, plainNamespace, "/first", o.reply)
					add(o.name+" ignored", lenientNamespace, "/first", o.reply)
					add(o.name+" judge", plainNamespace, "/judge", o.reply)
				}
			}
		}
	}
	return out
}

func oddPatches() []struct{ name, body string } {
	set := func(path, value string) string { return `[{"op":"add","path":"` + path + `","value":` + value + `}]` }
	return []struct{ name, body string }{
		{"no JSON", "nothing"}, {"object for a patch", "{}"}, {"text for a patch", `"x"`}, {"null for a patch", "null"}, {"no operation", "[]"},
		{"operation null", "[null]"}, {"operation without op", `[{"path":"/metadata/labels","value":{}}]`}, {"operation unknown", `[{"op":"x","path":"/data"}]`},
		{"operation without value", `[{"op":"add","path":"/metadata/labels"}]`},
		{"test fails", `[{"op":"test","path":"/metadata/name","value":"zzz"}]`}, {"test", `[{"op":"test","path":"/metadata/name","value":null}]`},
		{"remove missing", `[{"op":"remove","path":"/zzz"}]`}, {"replace missing", `[{"op":"replace","path":"/zzz","value":1}]`},
		{"add deep missing", set("/zzz/a/b", "1")}, {"add and remove", `[{"op":"add","path":"/zzz","value":1},{"op":"remove","path":"/zzz"}]`},
		{"uid", set("/metadata/uid", `"x"`)}, {"name", set("/metadata/name", `"other"`)}, {"no name", `[{"op":"remove","path":"/metadata/name"}]`},
		{"namespace", set("/metadata/namespace", `"other"`)}, {"no namespace", `[{"op":"remove","path":"/metadata/namespace"}]`},
		{"apiVersion", set("/apiVersion", `"v9"`)}, {"apiVersion of another group", set("/apiVersion", `"other.example.org/v1"`)}, {"kind", set("/kind", `"Other"`)},
		{"no apiVersion", `[{"op":"remove","path":"/apiVersion"}]`}, {"no kind", `[{"op":"remove","path":"/kind"}]`},
		{"labels list", set("/metadata/labels", `["a"]`)}, {"labels null", set("/metadata/labels", "null")}, {"label null", set("/metadata/labels", `{"a":null}`)},
		{"label number", set("/metadata/labels", `{"a":1}`)}, {"label wrong", set("/metadata/labels", `{"a b":"c"}`)}, {"annotation null", set("/metadata/annotations", `{"a":null}`)},
		{"annotations empty", set("/metadata/annotations", `{}`)},
		{"selfLink", set("/metadata/selfLink", `"/x"`)}, {"deletionTimestamp", set("/metadata/deletionTimestamp", `"2020-01-01T00:00:00Z"`)},
		{"deletionGracePeriodSeconds", set("/metadata/deletionGracePeriodSeconds", "5")}, {"finalizers", set("/metadata/finalizers", `["example.org/x"]`)},
		{"finalizer wrong", set("/metadata/finalizers", `["x"]`)}, {"creationTimestamp", set("/metadata/creationTimestamp", `"2020-01-01T00:00:00Z"`)},
		{"creationTimestamp wrong", set("/metadata/creationTimestamp", `"x"`)},
		{"resourceVersion", set("/metadata/resourceVersion", `"1"`)}, {"resourceVersion wrong", set("/metadata/resourceVersion", `"x"`)},
		{"generation", set("/metadata/generation", "77")}, {"generateName", set("/metadata/generateName", `"gen-"`)},
		{"owner wrong", set("/metadata/ownerReferences", `[{}]`)}, {"unknown field", set("/zzz", "1")}, {"unknown in metadata", set("/metadata/zzz", "1")},
		{"unknown in spec", set("/spec", `{"zzz":1}`)}, {"spec text", set("/spec", `"x"`)}, {"data number", set("/data", "7")}, {"metadata null", set("/metadata", "null")},
		{"no metadata", `[{"op":"remove","path":"/metadata"}]`}, {"metadata text", set("/metadata", `"x"`)}, {"empty document", set("", "{}")}, {"text document", set("", `"x"`)},
		{"null document", set("", "null")}, {"no managers", `[{"op":"remove","path":"/metadata/managedFields"}]`}, {"managers empty", set("/metadata/managedFields", "[]")},
		{"managers one", set("/metadata/managedFields", `[{}]`)}, {"managers text", set("/metadata/managedFields", `"x"`)}, {"status", set("/status", `{"replicas":9}`)},
		{"case of a member", set("/Metadata", `{"name":"other"}`)}, {"replicas text", set("/spec", `{"replicas":"x"}`)}, {"replicas negative", set("/spec", `{"replicas":-1}`)},
	}
}

// oddReplies returns replies that are odd beside their patch.
func oddReplies() []struct {
	name  string
	reply reply
} {
	type named = struct {
		name  string
		reply reply
	}
	var out []named
	add := func(name string, r reply) { out = append(out, named{name, r}) }
	const asJSON = "application/json"
	for _, t := range []string{"Foo", "", "jsonpatch"} {
		for _, patch := range []string{"", "W10=", "eHg=", "bnVsbA=="} { // none, [], xx, null
			add(fmt.Sprintf("patchType %q patch %q", t, patch), allowed(`,"patchType":"`+t+`","patch":"`+patch+`"`))
		}
	}
	add("patchType alone", allowed(`,"patchType":"JSONPatch"`))
	add("patch alone", allowed(`,"patch":"W10="`))
	add("patch no base64", allowed(`,"patchType":"JSONPatch","patch":"***"`))
	var many []string
	for i := range 30 {
		many = append(many, escaped(fmt.Sprintf("warning %02d %s", i, strings.Repeat("w", 180))))
	}
	for _, w := range []struct{ name, list string }{
		{"many", strings.Join(many, ",")}, {"256", escaped(strings.Repeat("a", 256))}, {"257", escaped(strings.Repeat("b", 257))}, {"300", escaped(strings.Repeat("c", 300))},
		{"5000", escaped(strings.Repeat("d", 5000))}, {"5000 and others", escaped(strings.Repeat("d", 5000)) + `,"x","y"`}, {"control", `"a\u0001b","c"`}, {"newline", `"a\nb","c"`},
		{"tab", `"a\tb"`}, {"delete", `"a\u007fb","c"`}, {"C1", `"a\u0085b","c"`}, {"empty", `"","x"`}, {"twice", `"x","x"`}, {"quoted", `"a \"b\" \\c"`}, {"umlauts", `"` + strings.Repeat("ü", 200) + `"`},
		{"long umlauts", `"` + strings.Repeat("ü", 3000) + `"`}, {"spaces", `"  x  "`}, {"null", `null`}, {"number", `1`}, {"invalid UTF-8", "\"a\xffb\""},
		{"many short", strings.TrimSuffix(strings.Repeat(`"a",`, 50), ",")},
	} {
		add("warnings "+w.name, allowed(`,"warnings":[`+w.list+`]`))
	}
	review := func(body string) reply { return reply{http.StatusOK, asJSON, body} }
	add("empty", review(""))
	add("HTML", reply{http.StatusOK, "text/html", "<html>no</html>"})
	add("HTML as JSON", review("<html>no</html>"))
	add("half", review(`{"apiVersion":"admission.k8s.io/v1","kind":"Admi`))
	add("list", review("[]"))
	add("null", review("null"))
	add("object", review("{}"))
	add("text", review(`"x"`))
	for _, kind := range []string{`"apiVersion":"v1","kind":"Status"`, `"apiVersion":"v1","kind":"Pod"`, `"apiVersion":"admission.k8s.io/v1","kind":"Other"`,
		`"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"`, `"apiVersion":"admission.k8s.io/v9","kind":"AdmissionReview"`, `"kind":"AdmissionReview"`,
		`"apiVersion":"admission.k8s.io/v1"`, `"apiVersion":"a/b/c","kind":"AdmissionReview"`} {
		add("kind "+kind, review(`{`+kind+`,"response":{"uid":"UID","allowed":true}}`))
	}
	head := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"`
	for _, response := range []string{"", `,"response":null`, `,"response":{}`, `,"response":"x"`, `,"response":{"uid":"x","allowed":true}`, `,"response":{"allowed":true}`,
		`,"response":{"uid":"UID"}`, `,"response":{"uid":"UID","Allowed":true}`, `,"response":{"uid":"UID","allowed":"yes"}`, `,"response":{"uid":"UID","allowed":null}`,
		`,"response":{"uid":"UID","allowed":true,"zzz":1}`, `,"response":{"uid":"UID","allowed":true,"allowed":false}`} {
		add("response "+response, review(head+response+"}"))
	}
	add("garbage behind", review(head+`,"response":{"uid":"UID","allowed":true}} x`))
	good := head + `,"response":{"uid":"UID","allowed":true}}`
	for _, contentType := range []string{"", "text/plain", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor", "x"} {
		add("type "+contentType, reply{http.StatusOK, contentType, good})
	}
	add("YAML", reply{http.StatusOK, "application/yaml", "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nresponse: {uid: UID, allowed: true}\n"})
	for _, status := range []int{201, 202, 204, 206, 301, 302, 400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503, 504} {
		body := good
		if status == http.StatusNoContent {
			body = ""
		}
		add(fmt.Sprintf("status %d", status), reply{status, asJSON, body})
		if status >= http.StatusBadRequest {
			add(fmt.Sprintf("status %d text", status), reply{status, "text/plain", "some words"})
			add(fmt.Sprintf("status %d Status", status), reply{status, asJSON,
				`{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Odd","message":"own words","code":` + fmt.Sprint(status) + `}`})
		}
	}
	for _, result := range []string{``, `,"status":{}`, `,"status":{"code":200}`, `,"status":{"code":404,"message":"no"}`, `,"status":{"code":422,"reason":"Invalid","message":"no"}`,
		`,"status":{"code":600,"message":"no"}`, `,"status":{"code":-1,"message":"no"}`, `,"status":{"status":"Success","message":"no"}`, `,"status":{"reason":"Because"}`,
		`,"status":{"code":429,"message":"no","details":{"retryAfterSeconds":3}}`, `,"status":{"message":"no","details":{"name":"n","kind":"k","causes":[{"field":"f","message":"m","reason":"FieldValueInvalid"}]}}`,
		`,"status":{"code":500,"message":"no","metadata":{"resourceVersion":"7"}}`, `,"status":{"code":409,"reason":"Conflict"}`, `,"status":{"code":404,"message":"a\u0001b\n"}`,
		`,"warnings":["w"],"status":{"code":403}`} {
		add("refused "+result, review(head+`,"response":{"uid":"UID","allowed":false`+result+`}}`))
	}
	return out
}

// managersCases returns the cases in which a webhook writes managedFields, most of which are invalid.
func managersCases(kinds []admittedKind) (out []admissionCase) {
	fields := map[string]string{"configmap": `{"f:data":{}}`, "deployment": `{"f:spec":{"f:paused":{}}}`, "widgetv1": `{"f:spec":{"f:note":{}}}`, "widgetv2": `{"f:spec":{"f:note":{}}}`}
	for i := range kinds {
		k := &kinds[i]
		own, ok := fields[k.name]
		if !ok {
			continue
		}
		version := strings.Split(k.head, `"`)[3]
		entry := func(operation, apiVersion, fieldsType, fields string) string {
			parts := []string{`"manager":"x"`}
			for _, p := range [][2]string{{"operation", operation}, {"apiVersion", apiVersion}, {"fieldsType", fieldsType}} {
				if p[1] != "" {
					parts = append(parts, `"`+p[0]+`":"`+p[1]+`"`)
				}
			}
			if fields != "" {
				parts = append(parts, `"fieldsV1":`+fields)
			}
			return `{` + strings.Join(parts, ",") + `}`
		}
		forms := []struct{ name, list string }{
			{"good", "[" + entry("Update", version, "FieldsV1", own) + "]"}, {"fields", "[" + entry("Update", version, "FieldsV1", `{"zzz":{}}`) + "]"},
			{"no operation", "[" + entry("", version, "FieldsV1", own) + "]"}, {"operation", "[" + entry("Y", version, "FieldsV1", own) + "]"},
			{"no apiVersion", "[" + entry("Update", "", "FieldsV1", own) + "]"}, {"apiVersion", "[" + entry("Update", "a/b/c", "FieldsV1", own) + "]"},
			{"other group", "[" + entry("Update", "other.example.org/v1", "FieldsV1", own) + "]"}, {"other version", "[" + entry("Update", strings.TrimSuffix(version, "1")+"7", "FieldsV1", own) + "]"},
			{"no fieldsType", "[" + entry("Update", version, "", own) + "]"}, {"fieldsType", "[" + entry("Update", version, "Z", own) + "]"},
			{"no fields", "[" + entry("Update", version, "FieldsV1", "") + "]"}, {"fields null", "[" + entry("Update", version, "FieldsV1", "null") + "]"},
			{"long manager", "[" + strings.Replace(entry("Update", version, "FieldsV1", own), `"x"`, `"`+strings.Repeat("x", 129)+`"`, 1) + "]"},
			{"twice", "[" + entry("Update", version, "FieldsV1", own) + "," + entry("Update", version, "FieldsV1", own) + "]"},
			{"good and bad", "[" + entry("Update", version, "FieldsV1", own) + "," + entry("Y", version, "FieldsV1", own) + "]"}, {"empty", "[]"}, {"null", "null"},
		}
		for _, w := range k.writes() {
			switch w.name {
			case "create", "put", "merge", "apply-creates", "apply-updates", "status-put", "status-merge", "scale-put", "scale-merge", "scale-apply":
				for _, f := range forms {
					r := patched(`[{"op":"add","path":"/metadata/managedFields","value":` + f.list + `}]`)
					out = append(out, admissionCase{"managers/" + k.name + " " + w.name + " " + f.name, plainNamespace, w.prepare, w.write, map[string]reply{"/first": r}, k.path()})
				}
			}
		}
	}
	return out
}
