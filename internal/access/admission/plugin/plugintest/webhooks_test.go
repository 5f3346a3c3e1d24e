package plugintest

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestWebhooks has webhooks change and refuse writes. A configuration that was just acknowledged takes effect with the
// next write.
func TestWebhooks(t *testing.T) {
	s, h := servertest.Start(t, servertest.Default()), apitest.NewWebhooks(t)
	label := apitest.PatchWith(`[{"op":"add","path":"/metadata/labels","value":{"by":"webhook"}}]`)
	h.On("/label", func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if r.Operation == admissionv1.Delete { // without an object there is nothing to label
			return apitest.Allow(r)
		}
		return label(r)
	})
	h.On("/judge", func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		allowed := !strings.Contains(r.Name, "bad")
		return &admissionv1.AdmissionResponse{Allowed: allowed, Warnings: []string{"look out"}}
	})
	h.Configure(s.Client, "MutatingWebhookConfiguration", "label", "/label", "")
	h.Configure(s.Client, "ValidatingWebhookConfiguration", "judge", "/judge", "")
	created := s.Send("POST", apitest.ConfigMapsPath, apitest.ConfigMap("good"))
	if created.Status != http.StatusCreated || !strings.Contains(created.Body, `"by":"webhook"`) {
		t.Errorf("a create: %d %s", created.Status, created.Body)
	}
	if got := created.Header.Get("Warning"); got != `299 - "look out"` {
		t.Errorf("the warning: %q", got)
	}
	asked := h.Requests("/judge")
	if len(asked) != 1 || asked[0].Operation != admissionv1.Create || asked[0].Kind.Kind != "ConfigMap" ||
		asked[0].UserInfo.Username == "" || !strings.Contains(string(asked[0].Object.Raw), `"by":"webhook"`) {
		t.Errorf("the validating webhook was asked %+v", asked)
	}
	bad := s.Send("POST", apitest.ConfigMapsPath, apitest.ConfigMap("bad"))
	want := `admission webhook "judge.example.com" denied the request without explanation`
	if bad.Status != http.StatusBadRequest || bad.Message() != want {
		t.Errorf("a refused create: %d %s", bad.Status, bad.Body)
	}
	if a := s.Send("GET", apitest.ConfigMapsPath+"/bad", ""); a.Status != http.StatusNotFound {
		t.Errorf("the refused object: %d", a.Status)
	}
	h.Requests("/judge")
	if a := s.Send("DELETE", apitest.ConfigMapsPath+"/good", ""); a.Status != http.StatusOK {
		t.Errorf("a deletion: %d %s", a.Status, a.Body)
	}
	asked = h.Requests("/judge")
	if len(asked) != 1 || asked[0].Operation != admissionv1.Delete || asked[0].Object.Raw != nil ||
		!strings.Contains(string(asked[0].OldObject.Raw), `"name":"good"`) {
		t.Errorf("about the deletion the webhook was asked %+v", asked)
	}
}

// TestWebhookFailures checks that a webhook that cannot be reached, or gives a wrong response, refuses the write
// unless its failurePolicy is Ignore.
func TestWebhookFailures(t *testing.T) {
	s, h := servertest.Start(t, servertest.Default()), apitest.NewWebhooks(t)
	h.On("/odd", apitest.PatchWith(`[{"op":"remove","path":"/data/none"}]`))
	h.On("/kind", apitest.PatchWith(`[{"op":"replace","path":"/data","value":7}]`))
	h.On("/long", apitest.PatchWith("["+strings.Repeat("{},", 1<<20)+"{}]"))
	hang := make(chan bool)
	h.On("/hang", func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { <-hang; return apitest.Allow(nil) })
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
		configuration := h.Configure(s.Client, "MutatingWebhookConfiguration", name, test.path, test.fields)
		a := s.Send("POST", apitest.ConfigMapsPath+test.query, apitest.ConfigMap(name))
		if a.Status != test.status || test.message != "" && !strings.Contains(a.Message(), test.message) {
			t.Errorf("%s%s: %d %s", test.path, test.fields, a.Status, a.Body)
		}
		s.Do("DELETE", configuration, "")
	}
}

// TestWebhooksAreCalledAgain checks that a webhook with reinvocationPolicy IfNeeded is called once more after
// another one has changed the object, and that a webhook with side effects is not called for a dry run.
func TestWebhooksAreCalledAgain(t *testing.T) {
	s, h := servertest.Start(t, servertest.Default()), apitest.NewWebhooks(t)
	h.On("/first", apitest.PatchWith(`[{"op":"add","path":"/data/first","value":"1"}]`))
	h.On("/never", apitest.Allow)
	h.On("/second", apitest.PatchWith(`[{"op":"add","path":"/data/second","value":"1"}]`))
	for _, made := range [][2]string{
		{"first", `,"reinvocationPolicy":"IfNeeded"`}, {"never", ""}, {"second", `,"reinvocationPolicy":"IfNeeded"`},
	} {
		h.Configure(s.Client, "MutatingWebhookConfiguration", made[0], "/"+made[0], made[1])
	}
	a := s.Send("POST", apitest.ConfigMapsPath, apitest.ConfigMap("a"))
	if a.Status != http.StatusCreated || !strings.Contains(a.Body, `"second":"1"`) {
		t.Fatal(a.Status, a.Body)
	}
	for path, want := range map[string]int{"/first": 2, "/never": 1, "/second": 1} {
		if got := len(h.Requests(path)); got != want {
			t.Errorf("%s was called %d times, not %d", path, got, want)
		}
	}
	body := h.Configuration("MutatingWebhookConfiguration", "writes", "/never", "")
	s.Create(apitest.AdmissionPath+"mutatingwebhookconfigurations",
		strings.Replace(body, `"sideEffects":"None"`, `"sideEffects":"NoneOnDryRun"`, 1))
	if a := s.Send("POST", apitest.ConfigMapsPath+"?dryRun=All", apitest.ConfigMap("b")); a.Status != http.StatusCreated {
		t.Errorf("a dry run: %d %s", a.Status, a.Body)
	}
	if asked := h.Requests("/never"); len(asked) != 2 || !*asked[0].DryRun {
		t.Errorf("the webhooks were asked %+v", asked)
	}
}

// TestWebhookBesideAHangingOne has ten webhooks, one of which hangs. During its call, writes that do not match
// this webhook go on, and the other nine decide about them.
func TestWebhookBesideAHangingOne(t *testing.T) {
	s, h := servertest.Start(t, servertest.Default()), apitest.NewWebhooks(t)
	hang, entered := make(chan bool), make(chan bool, 1)
	release := sync.OnceFunc(func() { close(hang) })
	t.Cleanup(release) // before the webhooks are closed
	h.On("/hang", func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		entered <- true
		<-hang
		return apitest.Allow(nil)
	})
	const others, writes = 9, 20
	for i := range others {
		path := fmt.Sprintf("/other%d", i)
		h.On(path, apitest.Allow)
		kind := []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}[i%2]
		body := strings.ReplaceAll(h.Configuration(kind, fmt.Sprint("other", i), path, ""), "configmaps", "secrets")
		s.Create(apitest.AdmissionPath+strings.ToLower(kind)+"s", body)
	}
	h.Configure(s.Client, "ValidatingWebhookConfiguration", "hang", "/hang", `,"timeoutSeconds":30`)
	done := make(chan apitest.Answer, 1)
	go func() { done <- s.Send("POST", apitest.ConfigMapsPath, apitest.ConfigMap("a")) }()
	select {
	case <-entered:
	case <-time.After(30 * time.Second):
		t.Fatal("the webhook was not called within 30 seconds")
	}
	for i := range writes {
		secret := fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s%d"}}`, i)
		if a := s.Send("POST", "/api/v1/namespaces/default/secrets", secret); a.Status != http.StatusCreated {
			t.Errorf("a write beside the hanging one: %d %s", a.Status, a.Body)
		}
	}
	select {
	case a := <-done:
		t.Fatalf("the write that waits for the hanging webhook has ended: %d %s", a.Status, a.Body)
	default:
	}
	for i := range others {
		if asked := len(h.Requests(fmt.Sprintf("/other%d", i))); asked != writes {
			t.Errorf("webhook %d was called %d times for %d writes", i, asked, writes)
		}
	}
	release()
	if a := <-done; a.Status != http.StatusCreated {
		t.Errorf("the write that waited: %d %s", a.Status, a.Body)
	}
}
