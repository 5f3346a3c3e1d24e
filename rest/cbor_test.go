package rest_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	restclient "k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson"
)

// TestCBOR writes, reads, lists and watches with CBOR bodies where the gate is on,
// and is refused where it is off.
func TestCBOR(t *testing.T) {
	config := keelson.InMemory()
	config.FeatureGates = []string{"CBORServingAndStorage=true"}
	on := startServer(t, config)
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
	if err := direct.Unmarshal(answer, &got); err != nil || !bytes.Equal(got.Data["k"], []byte{0xff, 0x00}) || got.Kind != "Secret" || got.UID == "" {
		t.Fatalf("created: %v, %+v", err, got)
	}
	_, answer = on.do(t, http.MethodGet, collection, "", nil)
	var list corev1.SecretList
	if err := direct.Unmarshal(answer, &list); err != nil || len(list.Items) != 1 || list.Kind != "SecretList" || list.ResourceVersion == "" {
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

	off := startServer(t, keelson.InMemory())
	if status, _ := off.accepting("application/json").do(t, http.MethodPost, collection, "application/cbor", body); status != http.StatusUnsupportedMediaType {
		t.Errorf("create without the gate: %d", status)
	}
	if status, _ := off.do(t, http.MethodGet, collection, "", nil); status != http.StatusNotAcceptable {
		t.Errorf("list without the gate: %d", status)
	}
}

type testServer struct {
	url, accept string
	client      *http.Client
}

func (s testServer) accepting(accept string) testServer { s.accept = accept; return s }

func startServer(t *testing.T, c keelson.Config) testServer {
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
