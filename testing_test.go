package keelson_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
)

// TestRequestsAreRecorded checks the recorded user, verb, object and status of requests: also for a generated
// name, a refused request, an unauthenticated one, and a watch that still runs.
func TestRequestsAreRecorded(t *testing.T) {
	s := keelson.ForTest(t, inProcess)
	admin, jane := clientset(t, s), clientFor(t, s.RESTConfigFor("jane"))
	named := configMap("")
	named.GenerateName = "made-"
	made, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), named, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jane.CoreV1().ConfigMaps("default").Get(t.Context(), "x", metav1.GetOptions{}); !kerrors.IsForbidden(err) {
		t.Fatal(err)
	}
	wrong := s.RESTConfigFor("jane")
	wrong.BearerToken += "x"
	_, err = clientFor(t, wrong).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	if !kerrors.IsUnauthorized(err) {
		t.Fatal(err)
	}
	w, err := admin.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for _, want := range []keelson.Request{
		{User: "kubernetes-admin", Verb: "create", Resource: "configmaps", Name: made.Name, Code: 201},
		{User: "jane", Verb: "get", Resource: "configmaps", Name: "x", Code: 403},
		{User: "", Verb: "list", Resource: "secrets", Code: 401},
		{User: "kubernetes-admin", Verb: "watch", Resource: "configmaps", Code: 200},
	} {
		got := s.Requests(keelson.Match{Verb: want.Verb, Resource: want.Resource})
		if len(got) != 1 || got[0].User != want.User || got[0].Name != want.Name || got[0].Code != want.Code ||
			got[0].Namespace != "default" || got[0].Version != "v1" || got[0].Time.IsZero() ||
			(got[0].Duration > 0) == (want.Verb == "watch") {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	s.ForgetRequests()
	if got := s.Requests(keelson.Match{}); len(got) != 0 {
		t.Errorf("after ForgetRequests: %+v", got)
	}
}

// TestFaults injects each kind of fault, with HTTP/1.1 in memory and with HTTP/2 over TLS.
func TestFaults(t *testing.T) {
	for name, change := range map[string]func(*config.Config){"socket": func(*config.Config) {}, "pipe": inProcess} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testFaults(t, keelson.ForTest(t, change))
		})
	}
}

func testFaults(t *testing.T, s *keelson.Server) {
	maps := clientset(t, s).CoreV1().ConfigMaps("default")
	a, err := maps.Create(t.Context(), configMap("a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	updates := keelson.Match{Verb: "update", Resource: "configmaps"}
	update := func() error {
		_, err := maps.Update(t.Context(), configMap("a"), metav1.UpdateOptions{})
		return err
	}
	for code, is := range map[int]func(error) bool{
		403: kerrors.IsForbidden, 404: kerrors.IsNotFound, 409: kerrors.IsConflict, 410: kerrors.IsResourceExpired, 500: kerrors.IsInternalError, 503: kerrors.IsServiceUnavailable,
		429: kerrors.IsTooManyRequests, 504: kerrors.IsTimeout,
	} {
		remove := s.InjectN(1, updates, keelson.Fail{Code: code})
		if err := update(); !is(err) {
			t.Errorf("%d: %v", code, err)
		}
		if err := update(); err != nil {
			t.Errorf("after one %d: %v", code, err)
		}
		remove()
	}
	// client-go repeats a request that is answered 429 with Retry-After.
	s.ForgetRequests()
	s.InjectN(1, updates, keelson.Fail{Code: 429, RetryAfter: time.Second})
	if err := update(); err != nil || len(s.Requests(updates)) != 2 {
		t.Errorf("after Retry-After: %v, %+v", err, s.Requests(updates))
	}
	defer s.Inject(keelson.Match{Verb: "update", Resource: "secrets"}, keelson.Fail{Code: 500})()
	if err := update(); err != nil {
		t.Errorf("a fault of another resource: %v", err)
	}

	remove := s.InjectN(1, updates, keelson.Drop{})
	if err := update(); err == nil || kerrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		t.Errorf("a dropped connection: %v", err)
	}
	remove()
	s.InjectN(1, keelson.Match{Verb: "create", Resource: "configmaps"}, keelson.DropAnswer{})
	if _, err := maps.Create(t.Context(), configMap("b"), metav1.CreateOptions{}); err == nil {
		t.Error("the answer was not dropped")
	}
	if _, err := maps.Get(t.Context(), "b", metav1.GetOptions{}); err != nil {
		t.Errorf("the request with a dropped answer was not carried out: %v", err)
	}

	remove = s.Inject(keelson.Match{Verb: "get", Name: "a"}, keelson.Delay{For: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := maps.Get(ctx, "a", metav1.GetOptions{})
		answered <- err
	}()
	if _, err := maps.Get(t.Context(), "b", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("a request with latency: %v", err)
	}
	remove()

	lists := keelson.Match{Verb: "list", Resource: "configmaps"}
	remove = s.Inject(lists, keelson.Stale{ResourceVersion: a.ResourceVersion})
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil || list.ResourceVersion != a.ResourceVersion {
		t.Fatalf("a stale list: %v, at %s", err, list.ResourceVersion)
	}
	for _, m := range list.Items {
		if m.Name == "b" {
			t.Error("the stale list has a newer object")
		}
	}
	remove()
}

// TestMistakesPanic: a call that would have no effect panics, with a text that names the mistake.
func TestMistakesPanic(t *testing.T) {
	s := keelson.ForTest(t, inProcess)
	pods, group := keelson.Match{Resource: "pods"}, keelson.Match{Group: "apps/v1"}
	for want, call := range map[string]func(){
		`keelson: no request for a resource has the Verb "Update"`: func() { s.Requests(keelson.Match{Verb: "Update"}) },
		`keelson: no request has the Resource "Pod"`:               func() { s.CutWatches(keelson.Match{Resource: "Pod"}) },
		`keelson: no request has the Group "apps/v1"`:              func() { s.Inject(group, keelson.Drop{}) },
		"keelson: the Code of Fail must be":                        func() { s.Inject(pods, keelson.Fail{Code: 42}) },
		"keelson: the number of requests must be positive":         func() { s.InjectN(0, pods, keelson.Drop{}) },
		"keelson: there is no fault":                               func() { s.Inject(pods) },
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.HasPrefix(text, want) {
					t.Errorf("%s, want %s", text, want)
				}
			}()
			call()
		}()
	}
}

// TestCutWatches: a watch that is cut off ends without an error, and others go on.
func TestCutWatches(t *testing.T) {
	s := keelson.ForTest(t)
	client := clientset(t, s)
	cut, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stays, err := client.CoreV1().Secrets("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer stays.Stop()
	if n := s.CutWatches(keelson.Match{Resource: "configmaps", Namespace: "default"}); n != 1 {
		t.Errorf("%d watches were cut off", n)
	}
	for e := range cut.ResultChan() {
		if m, ok := e.Object.(*corev1.ConfigMap); !ok || m.Name != "kube-root-ca.crt" {
			t.Errorf("the watch got %+v", e)
		}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if _, err := client.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := <-stays.ResultChan(); e.Object == nil {
		t.Error("the other watch has ended too")
	}
}

const definitionYAML = `# a comment first
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
size: 3
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const listYAML = `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: team}, data: {k: v}}
- {apiVersion: v1, kind: ConfigMap, metadata: {generateName: g-, namespace: team}}
- {apiVersion: v1, kind: Namespace, metadata: {name: team}}
`

// TestLoad checks that definitions and namespaces are loaded first, wherever they are, that files can be loaded
// again, and that an error has the whole path of its file and the number of the document.
func TestLoad(t *testing.T) {
	s := keelson.ForTest(t, inProcess)
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	write("all/a.yaml", definitionYAML)
	write("all/sub/b.yml", listYAML)
	write("all/README.md", "not YAML: [")
	if err := os.Symlink("bad", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Load(t.Context(), filepath.Join(dir, "all")); err != nil {
			t.Fatal(err)
		}
	}
	list, err := clientset(t, s).CoreV1().ConfigMaps("team").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, m := range list.Items {
		names += m.Name + " "
	}
	if strings.Count(names, "g-") != 2 || !strings.Contains(names, "a ") {
		t.Errorf("the ConfigMaps are %s", names)
	}
	if err := clientset(t, s).CoreV1().RESTClient().Get().AbsPath("/apis/example.com/v1/namespaces/default/widgets/w").
		Do(t.Context()).Error(); err != nil {
		t.Error(err)
	}
	for content, want := range map[string]string{
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: UPPER}":         "document 1: ConfigMap UPPER: ",
		"# first\n---\napiVersion: v1\nkind: Nothing\nmetadata: {name: a}": "document 2: Nothing a: v1 has no kind Nothing",
		"apiVersion: none.example/v1\nkind: X\nmetadata: {name: a}":        "document 1: X a: none.example/v1 is not served",
		"kind: ConfigMap": "document 1 has no apiVersion",
		"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Nothing}]}":              "document 1, item 1: Nothing : ",
		"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap}, {kind: X}]}": "document 1, item 2 has no apiVersion",
		"a: [": "document 1: ",
	} {
		file := write("bad/sub/x.yaml", content)
		for path, named := range map[string]string{file: file, dir + "/bad/": file, dir + "/link": dir + "/link/sub/x.yaml"} {
			if err := s.Load(t.Context(), path); err == nil || !strings.HasPrefix(err.Error(), named+": "+want) {
				t.Errorf("%q of %s: %v", content, path, err)
			}
		}
		err := s.LoadFS(t.Context(), os.DirFS(dir), "bad/")
		if err == nil || !strings.HasPrefix(err.Error(), "bad/sub/x.yaml: "+want) {
			t.Errorf("%q of a file system: %v", content, err)
		}
	}
	missing := filepath.Join(dir, "missing.yaml")
	if err := s.Load(t.Context(), missing); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("a missing file: %v", err)
	}
	files := fstest.MapFS{"x/c.json": {Data: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`)}}
	if err := s.LoadFS(t.Context(), files, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := clientset(t, s).CoreV1().ConfigMaps("default").Get(t.Context(), "c", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// TestWebhookClose: a call that runs when the webhook is closed gets its answer.
func TestWebhookClose(t *testing.T) {
	started, goOn, closed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	hook, err := keelson.ServeWebhook(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-goOn
		if _, err := io.Copy(w, r.Body); err != nil {
			t.Error(err)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-started
		closed <- hook.Close()
	}()
	go func() {
		defer close(goOn)
		<-started
		for { // Close first ends the listener
			conn, err := net.Dial("tcp", strings.TrimPrefix(hook.URL, "https://"))
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(hook.CABundle)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}, Timeout: 10 * time.Second}
	answer, err := client.Post(hook.URL, "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close(), <-closed); err != nil || string(body) != "hello" {
		t.Errorf("%q %v", body, err)
	}
}

// TestServeWebhook: a server without a socket calls a webhook of the test.
func TestServeWebhook(t *testing.T) {
	s := keelson.ForTest(t, inProcess)
	hook, err := keelson.ServeWebhook(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		body, err := io.ReadAll(r.Body)
		if err := errors.Join(err, json.Unmarshal(body, &review)); err != nil || r.URL.Path != "/validate" {
			t.Errorf("%s: %v", r.URL.Path, err)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Allowed: review.Request.Name != "bad", Result: &metav1.Status{Message: "it is bad"},
		}
		if err := json.NewEncoder(w).Encode(&review); err != nil {
			t.Error(err)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	none := admissionregistrationv1.SideEffectClassNone
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "test"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "test.example.com", ClientConfig: hook.ClientConfig("/validate"), SideEffects: &none,
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
				},
			}},
		}},
	}
	client := clientset(t, s)
	if _, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(
		t.Context(), configuration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	maps := client.CoreV1().ConfigMaps("default")
	if _, err := maps.Create(t.Context(), configMap("bad"), metav1.CreateOptions{}); err == nil ||
		!strings.Contains(err.Error(), "it is bad") {
		t.Errorf("a refused object: %v", err)
	}
	if _, err := maps.Create(t.Context(), configMap("good"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if err := hook.Close(); err != nil {
		t.Error(err)
	}
}
