package rest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
)

const revisions = "/apis/apps/v1/namespaces/here/controllerrevisions"

// revisionMessage is a ControllerRevision in protobuf, with data that need not be JSON.
func revisionMessage(t *testing.T, name, data string) []byte {
	t.Helper()
	message, err := scheme.EncodeEnvelope(wire.NewEnvelopeHead(
		"apps/v1", "ControllerRevision",
	), &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: someNamespace, UID: "u", Finalizers: []string{"example.com/f"}},
		Data:       runtime.RawExtension{Raw: []byte(data)}, Revision: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return message
}

func (c caller) status(method, path, contentType string, body []byte) (int, string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.server.URL+path, strings.NewReader(string(body)))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := c.server.Client().Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// TestInvalidRawJSON sends raw bytes that are not valid JSON: nothing may be stored.
func TestInvalidRawJSON(t *testing.T) {
	_, server := verbsServer(t)
	c := caller{t, server}
	for _, data := range []string{"not json", "{", `{"a":1}x`} {
		status, answer := c.status(http.MethodPost, revisions, scheme.TypeProtobuf, revisionMessage(t, "a", data))
		if status != http.StatusBadRequest {
			t.Errorf("%s: %d %.300s", data, status, answer)
		}
	}
	if status, answer := c.status(http.MethodGet, revisions, "", nil); status != http.StatusOK ||
		strings.Contains(answer, `"name"`) {
		t.Errorf("list: %d %.300s", status, answer)
	}
}

// TestObjectThatCannotBeShown reads and deletes an object that another server stored and that has no JSON. A list
// contains its metadata beside the other objects, and an annotation says what is wrong with it.
func TestObjectThatCannotBeShown(t *testing.T) {
	store, _, server := verbsServerOn(t, nil)
	c := caller{t, server}
	put := func(name, data string) {
		key := "/registry/controllerrevisions/" + someNamespace + "/" + name
		if _, err := store.Commit(
			t.Context(), storage.Txn{Ops: []storage.Op{storage.Put(key, revisionMessage(t, name, data))}},
		); err != nil {
			t.Fatal(err)
		}
	}
	put("bad", "not json")
	put("good", `{"a":"b"}`)
	status, answer := c.status(http.MethodGet, revisions, "", nil)
	var list struct {
		Items []struct {
			Metadata metav1.ObjectMeta
			Data     map[string]string
		}
	}
	if err := json.Unmarshal([]byte(answer), &list); err != nil || status != http.StatusOK || len(list.Items) != 2 {
		t.Fatalf("%d %v %s", status, err, answer)
	}
	if bad := list.Items[0].Metadata; bad.Name != "bad" || bad.UID != "u" ||
		!strings.Contains(bad.Annotations[registry.AnnotationUnshown], "invalid character") {
		t.Errorf("the object that cannot be shown: %v", bad)
	}
	if good := list.Items[1]; good.Metadata.Name != "good" || good.Data["a"] != "b" {
		t.Errorf("the object that can: %v", good)
	}
	c.watch(revisions+"?watch=1&resourceVersion=0", scheme.TypeJSON, registry.AnnotationUnshown)
	for _, way := range []struct{ method, body string }{
		{http.MethodDelete, ""}, {http.MethodPatch, `{"metadata":{"finalizers":null}}`},
	} {
		status, answer := c.status(way.method, revisions+"/bad", "application/strategic-merge-patch+json", []byte(way.body))
		if status != http.StatusOK {
			t.Errorf("%s: %d %s", way.method, status, answer)
		}
	}
	if status, _ := c.status(http.MethodGet, revisions+"/bad", "", nil); status != http.StatusNotFound {
		t.Errorf("it is still there: %d", status)
	}
}
