package plugintest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// twoVersions defines gadgets in two versions, with the subresource scale; v1 is stored.
const twoVersions = `{"metadata":{"name":"gadgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
	"names":{"plural":"gadgets","kind":"Gadget"},"versions":[%s,%s]}}`

const gadgetVersion = `{"name":%q,"served":true,"storage":%t,"subresources":{"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
	"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"spec":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}}}`

const gadgetsPath = "/apis/example.com/v2/namespaces/default/gadgets"

// seeing starts a server with gadgets, and a mutating webhook at path / that is called for all writes of some kinds.
func seeing(t *testing.T, fields string) (*servertest.Server, *apitest.Webhooks) {
	s, h := servertest.Start(t, servertest.Default()), apitest.NewWebhooks(t)
	h.On("/", apitest.Allow)
	s.Create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		fmt.Sprintf(twoVersions, fmt.Sprintf(gadgetVersion, "v1", true), fmt.Sprintf(gadgetVersion, "v2", false)))
	s.Served("/apis/example.com/v2/gadgets")
	s.Send("POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"default"}}`) // the server may have made it already
	before, rest, _ := strings.Cut(h.Configuration("MutatingWebhookConfiguration", "sees", "/", fields), `"rules":[`)
	_, rest, _ = strings.Cut(rest, "}]")
	s.Create(apitest.AdmissionPath+"mutatingwebhookconfigurations", before+`"rules":[{"operations":["*"],"apiGroups":["","example.com","coordination.k8s.io"],`+
		`"apiVersions":["*"],"resources":["configmaps","pods","pods/*","leases","gadgets","gadgets/*"]}]`+rest)
	return s, h
}

// TestWebhooksSeeObjectsOfWrites checks those parts of an object that a mutating webhook sees although they are
// not in the request: the namespace, the version of a deleted object, and the managedFields in bodies of
// subresources.
func TestWebhooksSeeObjectsOfWrites(t *testing.T) {
	s, h := seeing(t, "")
	const pods = "/api/v1/namespaces/default/pods"
	for _, c := range []struct {
		method, path, contentType, body string
		object, old                     string // parts of the objects; "" does not look
	}{
		{"PATCH", apitest.ConfigMapsPath + "/a?fieldManager=m", "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, `"namespace":"default"`, ""},
		{"POST", gadgetsPath, "", `{"apiVersion":"example.com/v2","kind":"Gadget","metadata":{"name":"g"},"spec":{"replicas":1}}`, "", ""},
		{"PATCH", gadgetsPath + "/g/scale?fieldManager=m", "application/merge-patch+json", `{"spec":{"replicas":2}}`, `"manager":"m"`, `"f:replicas":{}`},
		{"POST", gadgetsPath, "", `{"apiVersion":"example.com/v2","kind":"Gadget","metadata":{"name":"bare"},"spec":{}}`, "", ""},
		{"PATCH", gadgetsPath + "/bare/scale", "application/merge-patch+json", `{"spec":{"replicas":2}}`, "", `"replicas":-2147483648`},
		{"POST", strings.Replace(gadgetsPath, "v2", "v1", 1), "", `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"d"},"spec":{}}`, "", ""},
		{"DELETE", gadgetsPath + "/d", "", "", "", `{"apiVersion":"example.com/v2"`},
		{"DELETE", gadgetsPath, "", "", "", `{"apiVersion":"example.com/v2"`},
		{"POST", pods, "", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, "", ""},
		{"POST", pods + "/p/binding?fieldManager=m", "", `{"metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}`, `"f:target":{}`, ""},
	} {
		h.Requests("/")
		contentType := c.contentType
		if contentType == "" {
			contentType = "application/json"
		}
		if a := s.Send(c.method, c.path, c.body, "Content-Type", contentType); a.Status >= http.StatusBadRequest {
			t.Fatalf("%s %s: %d %.500s", c.method, c.path, a.Status, a.Body)
		}
		asked := h.Requests("/")
		if len(asked) == 0 {
			t.Errorf("%s %s: the webhook is not called", c.method, c.path)
			continue
		}
		if got := string(asked[0].Object.Raw); !strings.Contains(got, c.object) {
			t.Errorf("%s %s: object %s has no %s", c.method, c.path, got, c.object)
		}
		if got := string(asked[0].OldObject.Raw); !strings.Contains(got, c.old) {
			t.Errorf("%s %s: oldObject %s has no %s", c.method, c.path, got, c.old)
		}
	}
}

// TestWrongUIDBeforeAdmission checks that an object with a UID that is not the stored one is refused before a
// webhook is called, also in a PUT that would create the object. A UID that a webhook changes is checked by the
// validation instead.
func TestWrongUIDBeforeAdmission(t *testing.T) {
	s, h := seeing(t, "")
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	s.Create(apitest.ConfigMapsPath, apitest.ConfigMap("a"))
	s.Create(gadgetsPath, `{"apiVersion":"example.com/v2","kind":"Gadget","metadata":{"name":"g"},"spec":{"replicas":1}}`)
	for _, c := range []struct{ method, path, contentType, body string }{
		{"PUT", apitest.ConfigMapsPath + "/a", "application/json", `{"metadata":{"name":"a","uid":"x"}}`},
		{"PUT", leases + "/none", "application/json", `{"metadata":{"name":"none","uid":"x"}}`},
		{"PATCH", apitest.ConfigMapsPath + "/none?fieldManager=m", "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"none","uid":"x"}}`},
		{"PUT", gadgetsPath + "/g/scale", "application/json", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"g","uid":"x"},"spec":{"replicas":2}}`},
	} {
		h.Requests("/")
		if a := s.Send(c.method, c.path, c.body, "Content-Type", c.contentType); a.Status != http.StatusConflict {
			t.Errorf("%s %s: %d %.300s", c.method, c.path, a.Status, a.Body)
		}
		if asked := h.Requests("/"); len(asked) > 0 {
			t.Errorf("%s %s: the webhook was called", c.method, c.path)
		}
	}
	h.On("/", apitest.PatchWith(`[{"op":"add","path":"/metadata/uid","value":"x"}]`))
	if a := s.Send("PUT", apitest.ConfigMapsPath+"/a", apitest.ConfigMap("a")); a.Status != http.StatusUnprocessableEntity {
		t.Errorf("an update whose UID a webhook changes: %d %.300s", a.Status, a.Body)
	}
	created := s.Send("PATCH", apitest.ConfigMapsPath+"/new?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"}}`, "Content-Type", "application/apply-patch+yaml")
	if created.Status != http.StatusCreated || strings.Contains(created.Body, `"uid":"x"`) {
		t.Errorf("an apply that creates and whose UID a webhook sets: %d %.300s", created.Status, created.Body)
	}
}

// TestRenamedByWebhook checks that a webhook that changes the name in an apply cannot make it write to another
// object.
func TestRenamedByWebhook(t *testing.T) {
	s, h := seeing(t, "")
	s.Create(apitest.ConfigMapsPath, apitest.ConfigMap("other"))
	h.On("/", apitest.PatchWith(`[{"op":"add","path":"/metadata/name","value":"other"}]`))
	a := s.Send("PATCH", apitest.ConfigMapsPath+"/new?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"},"data":{"by":"apply"}}`, "Content-Type", "application/apply-patch+yaml")
	if a.Status != http.StatusBadRequest {
		t.Errorf("%d %.300s", a.Status, a.Body)
	}
	if got := s.Get(apitest.ConfigMapsPath + "/other"); strings.Contains(got, "apply") {
		t.Errorf("the other object was changed: %s", got)
	}
}

// TestOddPatchesOfWebhooks checks invalid patches. They count as a failed call, so that the failure policy
// decides. The type of a patch without operations does not matter.
func TestOddPatchesOfWebhooks(t *testing.T) {
	foo, jsonPatch := admissionv1.PatchType("Foo"), admissionv1.PatchTypeJSONPatch
	for _, c := range []struct {
		fields, patch string
		patchType     *admissionv1.PatchType
		status        int
		message       string
	}{
		{"", "nothing", &jsonPatch, http.StatusInternalServerError, `failed calling webhook "sees.example.com": received undecodable patch in webhook response: `},
		{`,"failurePolicy":"Ignore"`, "nothing", &jsonPatch, http.StatusCreated, ""},
		{"", "[]", &foo, http.StatusCreated, ""},
		{"", `[{"op":"remove","path":"/data"}]`, &foo, http.StatusInternalServerError, `unsupported patch type "Foo"`},
	} {
		s, h := seeing(t, c.fields)
		h.On("/", func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(c.patch), PatchType: c.patchType}
		})
		a := s.Send("POST", apitest.ConfigMapsPath, apitest.ConfigMap("a"))
		var message struct{ Message string }
		_ = json.Unmarshal([]byte(a.Body), &message)
		if a.Status != c.status || !strings.Contains(message.Message, c.message) {
			t.Errorf("patch %s of type %s%s: %d %.300s", c.patch, *c.patchType, c.fields, a.Status, a.Body)
		}
	}
}

// TestWebhooksSeeOptionsOfDeletions deletes a pod that is being deleted already. The options then have no grace
// period that the server has added.
func TestWebhooksSeeOptionsOfDeletions(t *testing.T) {
	s, h := seeing(t, "")
	const pods = "/api/v1/namespaces/default/pods"
	s.Create(pods, `{"metadata":{"name":"p","finalizers":["example.com/f"]},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	s.Do("DELETE", pods+"/p", "")
	for _, path := range []string{pods + "/p", pods} {
		h.Requests("/")
		if a := s.Send("DELETE", path, ""); a.Status != http.StatusOK {
			t.Fatalf("DELETE %s: %d %.300s", path, a.Status, a.Body)
		}
		for _, asked := range h.Requests("/") {
			if got := string(asked.Options.Raw); strings.Contains(got, "gracePeriodSeconds") {
				t.Errorf("DELETE %s: options %s", path, got)
			}
		}
	}
}

// TestOddMetadataOfWebhooks has patches of a webhook that set metadata of a wrong type, or metadata that no client
// can set.
func TestOddMetadataOfWebhooks(t *testing.T) {
	s, h := seeing(t, "")
	const deployments = "/apis/apps/v1/namespaces/default/deployments"
	s.Create(gadgetsPath, `{"apiVersion":"example.com/v2","kind":"Gadget","metadata":{"name":"g"},"spec":{"replicas":1}}`)
	s.Create(deployments, `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	configuration := apitest.AdmissionPath + "mutatingwebhookconfigurations/sees"
	s.Send("PATCH", configuration, `[{"op":"add","path":"/webhooks/0/rules/0/apiGroups/-","value":"apps"},{"op":"add","path":"/webhooks/0/rules/0/resources/-","value":"deployments/scale"}]`,
		"Content-Type", "application/json-patch+json")
	for _, c := range []struct {
		patch, method, path, contentType, body string
		status                                 int
	}{
		{`[{"op":"add","path":"/metadata/labels","value":["a"]}]`, "PATCH", gadgetsPath + "/g", "application/merge-patch+json", `{"spec":{"replicas":3}}`, http.StatusUnprocessableEntity},
		{`[{"op":"add","path":"/metadata/labels","value":{"a b":"c"}}]`, "PATCH", deployments + "/d/scale", "application/merge-patch+json", `{"spec":{"replicas":3}}`, http.StatusOK},
		{`[{"op":"add","path":"/spec/replicas","value":-3}]`, "PATCH", deployments + "/d/scale", "application/merge-patch+json", `{"spec":{"replicas":3}}`, http.StatusUnprocessableEntity},
		{`[{"op":"add","path":"/metadata/deletionTimestamp","value":"2020-01-01T00:00:00Z"}]`, "POST", apitest.ConfigMapsPath, "application/json", apitest.ConfigMap("new"), http.StatusCreated},
	} {
		h.On("/", apitest.PatchWith(c.patch))
		a := s.Send(c.method, c.path, c.body, "Content-Type", c.contentType)
		if a.Status != c.status || strings.Contains(a.Body, "deletionTimestamp") {
			t.Errorf("%s with the patch %s: %d %.300s", c.path, c.patch, a.Status, a.Body)
		}
	}
}

// TestEmptyAnswerOfAWebhook checks that the error of an answer without a body says so.
func TestEmptyAnswerOfAWebhook(t *testing.T) {
	s, h := servertest.Start(t, servertest.Default()), apitest.NewWebhooks(t)
	h.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	h.Configure(s.Client, "ValidatingWebhookConfiguration", "empty", "/", "")
	a := s.Send("POST", apitest.ConfigMapsPath, apitest.ConfigMap("a"))
	want := `Internal error occurred: failed calling webhook "empty.example.com": failed to call webhook: 0-length response with status code: 200 and content type: `
	if a.Status != http.StatusInternalServerError || a.Message() != want {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
