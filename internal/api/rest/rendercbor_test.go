package rest_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	restclient "k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
)

// TestCBOR writes, reads, lists and watches with CBOR bodies if the feature gate is on, and checks that they are
// refused if the gate is off.
func TestCBOR(t *testing.T) {
	conf := config.InMemory()
	conf.API.FeatureGates = []string{"CBORServingAndStorage=true"}
	on := startServer(t, conf)
	secret := &corev1.Secret{Data: map[string][]byte{"k": {0xff, 0x00}}}
	secret.Name = "a"
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	body, err := direct.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	const collection = "/api/v1/namespaces/default/secrets"
	status, answer := on.do(t, http.MethodPost, collection, "application/cbor", body)
	if status != http.StatusCreated {
		t.Fatalf("create: %d %s", status, answer)
	}
	var got corev1.Secret
	if err := direct.Unmarshal(answer, &got); err != nil || !bytes.Equal(got.Data["k"], []byte{0xff, 0x00}) ||
		got.Kind != "Secret" || got.UID == "" {
		t.Fatalf("created: %v, %+v", err, got)
	}
	_, answer = on.do(t, http.MethodGet, collection, "", nil)
	var list corev1.SecretList
	if err := direct.Unmarshal(answer, &list); err != nil || len(list.Items) != 1 || list.Kind != "SecretList" ||
		list.ResourceVersion == "" {
		t.Fatalf("list: %v, %+v", err, list)
	}
	_, answer = on.do(t, http.MethodGet, collection+"?watch=true&timeoutSeconds=1", "", nil)
	var event struct {
		Type   string        `json:"type"`
		Object corev1.Secret `json:"object"`
	}
	if err := direct.Unmarshal(answer, &event); err != nil || event.Type != "ADDED" || event.Object.Name != "a" {
		t.Fatalf("watch: %v, %+v", err, event)
	}

	off := startServer(t, config.InMemory())
	if status, _ := off.accepting("application/json").do(
		t, http.MethodPost, collection, "application/cbor", body,
	); status != http.StatusUnsupportedMediaType {
		t.Errorf("create without the gate: %d", status)
	}
	if status, _ := off.do(t, http.MethodGet, collection, "", nil); status != http.StatusNotAcceptable {
		t.Errorf("list without the gate: %d", status)
	}
}

// TestCBOROfCustomResources writes, patches and lists a custom resource in CBOR.
func TestCBOROfCustomResources(t *testing.T) {
	conf := config.InMemory()
	conf.API.FeatureGates = []string{"CBORServingAndStorage=true"}
	s := startServer(t, conf)
	definition := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.cbor.example.com"},
		"spec":{"group":"cbor.example.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},
			"versions":[{"name":"v1","served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer"}}}}}}}]}}`
	if status, answer := s.do(
		t, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/json", []byte(definition),
	); status != http.StatusCreated {
		t.Fatalf("definition: %d %s", status, answer)
	}
	const collection = "/apis/cbor.example.com/v1/namespaces/default/widgets"
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if status, _ := s.do(t, http.MethodGet, collection, "", nil); status == http.StatusOK {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the resource is not served: %d", status)
		}
	}
	encode := func(v any) []byte {
		b, err := direct.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	widget := func(size any) map[string]any {
		return map[string]any{
			"apiVersion": "cbor.example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"},
			"spec": map[string]any{"size": size, "unknown": true},
		}
	}
	steps := []struct {
		method, path, contentType string
		body                      any
		status                    int
	}{
		{http.MethodPost, collection, "application/cbor", widget(1), http.StatusCreated},
		{http.MethodPost, collection + "?fieldValidation=Strict", "application/cbor", widget(1), http.StatusBadRequest},
		{http.MethodPost, collection, "application/cbor", widget("one"), http.StatusUnprocessableEntity},
		{http.MethodPatch, collection + "/a?fieldManager=m&force=true", "application/apply-patch+cbor", map[string]any{
			"apiVersion": "cbor.example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"},
			"spec": map[string]any{"size": 2}}, http.StatusOK},
		{http.MethodGet, collection + "/a", "", nil, http.StatusOK},
	}
	var answer []byte
	for _, step := range steps {
		var body []byte
		if step.body != nil {
			body = encode(step.body)
		}
		var status int
		if status, answer = s.do(t, step.method, step.path, step.contentType, body); status != step.status {
			var shown any
			_ = direct.Unmarshal(answer, &shown) // only to be shown
			t.Fatalf("%s %s: %d, want %d: %v", step.method, step.path, status, step.status, shown)
		}
	}
	var list unstructured.UnstructuredList
	_, answer = s.do(t, http.MethodGet, collection, "", nil)
	var tree map[string]any
	if err := direct.Unmarshal(answer, &tree); err != nil {
		t.Fatal(err)
	}
	list.SetUnstructuredContent(tree)
	if list.GetKind() != "WidgetList" || len(list.Items) != 1 {
		t.Fatalf("list %v", tree)
	}
	item := list.Items[0]
	if size, _, err := unstructured.NestedInt64(item.Object, "spec", "size"); item.GetKind() != "Widget" || size != 2 ||
		err != nil {
		t.Errorf("item %v", item.Object)
	}
	if _, found, err := unstructured.NestedFieldNoCopy(item.Object, "spec", "unknown"); found || err != nil {
		t.Errorf("an unknown field was kept: %v", item.Object)
	}
}

type testServer struct {
	url, accept string
	client      *http.Client
}

func (s testServer) accepting(accept string) testServer { s.accept = accept; return s }

func startServer(t *testing.T, c config.Config) testServer {
	t.Helper()
	s, err := keelson.Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(context.Background()) })
	client, err := restclient.HTTPClientFor(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return testServer{s.URL(), "application/cbor", client}
}

// do sends a request; it accepts CBOR unless told otherwise.
func (s testServer) do(t *testing.T, method, path, contentType string, body []byte) (int, []byte) {
	t.Helper()
	req, err := http.NewRequest(method, s.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", s.accept)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, answer
}
