package server

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// hooks is a program with admission webhooks. Each path is one webhook.
type hooks struct {
	*httptest.Server
	mu      sync.Mutex // guards what follows
	answers map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
	asked   map[string][]admissionv1.AdmissionRequest
}

func newHooks(t *testing.T) *hooks {
	h := &hooks{
		answers: map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse{},
		asked:   map[string][]admissionv1.AdmissionRequest{},
	}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.mu.Lock()
		answer := h.answers[r.URL.Path]
		h.asked[r.URL.Path] = append(h.asked[r.URL.Path], *review.Request)
		h.mu.Unlock()
		if answer == nil {
			http.NotFound(w, r)
			return
		}
		review.Response = answer(review.Request)
		review.Response.UID, review.Request = review.Request.UID, nil
		_ = json.NewEncoder(w).Encode(review) // the server may be gone
	}))
	t.Cleanup(h.Close)
	return h
}

// on makes a path a webhook.
func (h *hooks) on(path string, answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers[path] = answer
}

// requests returns what a webhook was asked since the last call.
func (h *hooks) requests(path string) []admissionv1.AdmissionRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	asked := h.asked[path]
	h.asked[path] = nil
	return asked
}

// configuration returns a configuration with one webhook for writes of ConfigMaps. fields are further members of the
// webhook as JSON, each with a comma before it. Without a namespaceSelector among them it is not called for the
// ConfigMaps in kube-system, which the server writes some time after its start.
func (h *hooks) configuration(kind, name, path, fields string) string {
	if !strings.Contains(fields, "namespaceSelector") {
		fields += `,"namespaceSelector":{"matchExpressions":[
			{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["kube-system"]}]}`
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":%q,"metadata":{"name":%q},"webhooks":[{
		"name":"%s.example.com","clientConfig":{"url":%q,"caBundle":%q},"admissionReviewVersions":["v1"],"sideEffects":"None",
		"rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["v1"],"resources":["configmaps","configmaps/*"]}]%s}]}`,
		kind, name, name, h.URL+path, base64.StdEncoding.EncodeToString(ca), fields)
}

func allow(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

// patchWith returns a webhook that applies a JSON patch.
func patchWith(patch string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		kind := admissionv1.PatchTypeJSONPatch
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: &kind}
	}
}

const (
	webhookConfigurations = "/apis/admissionregistration.k8s.io/v1/"
	configMapsPath        = "/api/v1/namespaces/default/configmaps"
)

func configMapNamed(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"a":"1"}}`, name)
}

// TestWebhooks has webhooks change and refuse writes. A configuration that was just acknowledged takes effect with the
// next write.
func TestWebhooks(t *testing.T) {
	s, h := start(t, testConfig(t)), newHooks(t)
	c := httpClient(t, s, true)
	url := s.URL()
	label := patchWith(`[{"op":"add","path":"/metadata/labels","value":{"by":"webhook"}}]`)
	h.on("/label", func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if r.Operation == admissionv1.Delete { // without an object there is nothing to label
			return allow(r)
		}
		return label(r)
	})
	h.on("/judge", func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		allowed := !strings.Contains(r.Name, "bad")
		return &admissionv1.AdmissionResponse{Allowed: allowed, Warnings: []string{"look out"}}
	})
	for _, made := range []struct{ resource, body string }{
		{"mutatingwebhookconfigurations", h.configuration("MutatingWebhookConfiguration", "label", "/label", "")},
		{"validatingwebhookconfigurations", h.configuration("ValidatingWebhookConfiguration", "judge", "/judge", "")},
	} {
		if a := sendJSON(t, c, "POST", url+webhookConfigurations+made.resource, made.body); a.status != http.StatusCreated {
			t.Fatal(a.status, a.body)
		}
	}
	created := sendJSON(t, c, "POST", url+configMapsPath, configMapNamed("good"))
	if created.status != http.StatusCreated || !strings.Contains(created.body, `"by":"webhook"`) {
		t.Errorf("a create: %d %s", created.status, created.body)
	}
	if got := created.header.Get("Warning"); got != `299 - "look out"` {
		t.Errorf("the warning: %q", got)
	}
	asked := h.requests("/judge")
	if len(asked) != 1 || asked[0].Operation != admissionv1.Create || asked[0].Kind.Kind != "ConfigMap" ||
		asked[0].UserInfo.Username == "" || !strings.Contains(string(asked[0].Object.Raw), `"by":"webhook"`) {
		t.Errorf("the validating webhook was asked %+v", asked)
	}
	bad := sendJSON(t, c, "POST", url+configMapsPath, configMapNamed("bad"))
	want := `admission webhook "judge.example.com" denied the request without explanation`
	if bad.status != http.StatusBadRequest || bad.message() != want {
		t.Errorf("a refused create: %d %s", bad.status, bad.body)
	}
	if a := call(t, c, "GET", url+configMapsPath+"/bad"); a.status != http.StatusNotFound {
		t.Errorf("the refused object: %d", a.status)
	}
	h.requests("/judge")
	if a := call(t, c, "DELETE", url+configMapsPath+"/good"); a.status != http.StatusOK {
		t.Errorf("a deletion: %d %s", a.status, a.body)
	}
	asked = h.requests("/judge")
	if len(asked) != 1 || asked[0].Operation != admissionv1.Delete || asked[0].Object.Raw != nil ||
		!strings.Contains(string(asked[0].OldObject.Raw), `"name":"good"`) {
		t.Errorf("about the deletion the webhook was asked %+v", asked)
	}
}

// TestWebhookFailures: a webhook that cannot be reached, or gives a wrong response, refuses the write unless its policy is
// to ignore that.
func TestWebhookFailures(t *testing.T) {
	s, h := start(t, testConfig(t)), newHooks(t)
	c := httpClient(t, s, true)
	url := s.URL() + webhookConfigurations + "mutatingwebhookconfigurations"
	h.on("/odd", patchWith(`[{"op":"remove","path":"/data/none"}]`))
	h.on("/kind", patchWith(`[{"op":"replace","path":"/data","value":7}]`))
	h.on("/long", patchWith("["+strings.Repeat("{},", 1<<20)+"{}]"))
	hang := make(chan bool)
	h.on("/hang", func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { <-hang; return allow(nil) })
	t.Cleanup(func() { close(hang) })
	const ignore = `,"failurePolicy":"Ignore"`
	for i, test := range []struct {
		path, fields, query string
		status              int
		message             string
	}{
		{"/missing", "", "", 500, `failed calling webhook "w0.example.com": failed to call webhook: `},
		{"/missing", ignore, "", 201, ""},
		{"/odd", "", "", 500, "Internal error occurred: "},
		{"/odd", ignore, "", 500, "Internal error occurred: "},
		{"/kind", "", "", 500, "Internal error occurred: "},
		{"/long", "", "", 500, "the patch has more than 1048576 values"},
		{"/hang", `,"timeoutSeconds":1`, "", 500, "context deadline exceeded"},
		{"/hang", `,"timeoutSeconds":1` + ignore, "", 201, ""},
		{"/missing", `,"matchPolicy":"Exact","objectSelector":{"matchLabels":{"a":"b"}}`, "", 201, ""},
		{"/missing", `,"namespaceSelector":{"matchLabels":{"a":"b"}}`, "", 201, ""},
	} {
		name := fmt.Sprintf("w%d", i)
		body := h.configuration("MutatingWebhookConfiguration", name, test.path, test.fields)
		if a := sendJSON(t, c, "POST", url, body); a.status != http.StatusCreated {
			t.Fatal(a.status, a.body)
		}
		a := sendJSON(t, c, "POST", s.URL()+configMapsPath+test.query, configMapNamed(name))
		if a.status != test.status || test.message != "" && !strings.Contains(a.message(), test.message) {
			t.Errorf("%s%s: %d %s", test.path, test.fields, a.status, a.body)
		}
		if a := call(t, c, "DELETE", url+"/"+name); a.status != http.StatusOK {
			t.Fatal(a.status, a.body)
		}
	}
}

// TestWebhooksAreCalledAgain: a webhook that asks for it is called again after another one has changed the object, and
// once only. For a dry run a webhook with side effects is not called.
func TestWebhooksAreCalledAgain(t *testing.T) {
	s, h := start(t, testConfig(t)), newHooks(t)
	c := httpClient(t, s, true)
	url := s.URL() + webhookConfigurations + "mutatingwebhookconfigurations"
	h.on("/first", patchWith(`[{"op":"add","path":"/data/first","value":"1"}]`))
	h.on("/never", allow)
	h.on("/second", patchWith(`[{"op":"add","path":"/data/second","value":"1"}]`))
	for _, made := range [][2]string{
		{"first", `,"reinvocationPolicy":"IfNeeded"`}, {"never", ""}, {"second", `,"reinvocationPolicy":"IfNeeded"`},
	} {
		body := h.configuration("MutatingWebhookConfiguration", made[0], "/"+made[0], made[1])
		if a := sendJSON(t, c, "POST", url, body); a.status != http.StatusCreated {
			t.Fatal(a.status, a.body)
		}
	}
	a := sendJSON(t, c, "POST", s.URL()+configMapsPath, configMapNamed("a"))
	if a.status != http.StatusCreated || !strings.Contains(a.body, `"second":"1"`) {
		t.Fatal(a.status, a.body)
	}
	for path, want := range map[string]int{"/first": 2, "/never": 1, "/second": 1} {
		if got := len(h.requests(path)); got != want {
			t.Errorf("%s was called %d times, not %d", path, got, want)
		}
	}
	body := h.configuration("MutatingWebhookConfiguration", "writes", "/never", "")
	body = strings.Replace(body, `"sideEffects":"None"`, `"sideEffects":"Some"`, 1)
	if a := sendJSON(t, c, "POST", url, strings.Replace(body, "Some", "NoneOnDryRun", 1)); a.status != http.StatusCreated {
		t.Fatal(a.status, a.body)
	}
	if a := sendJSON(t, c, "POST", s.URL()+configMapsPath+"?dryRun=All", configMapNamed("b")); a.status != http.StatusCreated {
		t.Errorf("a dry run: %d %s", a.status, a.body)
	}
	if asked := h.requests("/never"); len(asked) != 2 || !*asked[0].DryRun {
		t.Errorf("the webhooks were asked %+v", asked)
	}
}

// TestWebhookBesideAHangingOne: of ten webhooks one hangs. While its call is open, writes that it does not concern go
// on and are judged by the other nine.
func TestWebhookBesideAHangingOne(t *testing.T) {
	s, h := start(t, testConfig(t)), newHooks(t)
	c := httpClient(t, s, true)
	hang, entered := make(chan bool), make(chan bool, 1)
	release := sync.OnceFunc(func() { close(hang) })
	t.Cleanup(release) // before the webhooks are closed
	h.on("/hang", func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		entered <- true
		<-hang
		return allow(nil)
	})
	const others, writes = 9, 20
	for i := range others {
		path := fmt.Sprintf("/other%d", i)
		h.on(path, allow)
		kind := []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}[i%2]
		body := strings.ReplaceAll(h.configuration(kind, fmt.Sprint("other", i), path, ""), "configmaps", "secrets")
		path = s.URL() + webhookConfigurations + strings.ToLower(kind) + "s"
		if a := sendJSON(t, c, "POST", path, body); a.status != http.StatusCreated {
			t.Fatal(a.status, a.body)
		}
	}
	body := h.configuration("ValidatingWebhookConfiguration", "hang", "/hang", `,"timeoutSeconds":30`)
	if a := sendJSON(t, c, "POST", s.URL()+webhookConfigurations+"validatingwebhookconfigurations", body); a.status != 201 {
		t.Fatal(a.status, a.body)
	}
	done := make(chan answer, 1)
	go func() { done <- sendJSON(t, c, "POST", s.URL()+configMapsPath, configMapNamed("a")) }()
	select {
	case <-entered:
	case <-time.After(30 * time.Second):
		t.Fatal("the webhook was not called within 30 seconds")
	}
	for i := range writes {
		secret := fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s%d"}}`, i)
		if a := sendJSON(t, c, "POST", s.URL()+"/api/v1/namespaces/default/secrets", secret); a.status != http.StatusCreated {
			t.Errorf("a write beside the hanging one: %d %s", a.status, a.body)
		}
	}
	select {
	case a := <-done:
		t.Fatalf("the write that waits for the hanging webhook has ended: %d %s", a.status, a.body)
	default:
	}
	for i := range others {
		if asked := len(h.requests(fmt.Sprintf("/other%d", i))); asked != writes {
			t.Errorf("webhook %d was called %d times for %d writes", i, asked, writes)
		}
	}
	release()
	if a := <-done; a.status != http.StatusCreated {
		t.Errorf("the write that waited: %d %s", a.status, a.body)
	}
}
