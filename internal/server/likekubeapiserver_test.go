package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestNameExists compares the errors for an object that already exists with those of kube-apiserver. If the
// request has a generateName too, the error says that a generated name was not unique, although the name was
// given.
func TestNameExists(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	const maps = "/api/v1/namespaces/default/configmaps"
	s.Create(maps, `{"metadata":{"name":"a"}}`)
	s.Run([]apitest.Step{
		{"POST", maps, `{"metadata":{"name":"a"}}`, 409,
			`"message":"configmaps \"a\" already exists","reason":"AlreadyExists","details":{"name":"a","kind":"configmaps"}`},
		{"POST", maps, `{"metadata":{"name":"a","generateName":"b-"}}`, 409,
			`"message":"configmaps \"a\" already exists, the server was not able to generate a unique name for the object",` +
				`"reason":"AlreadyExists","details":{"name":"a","kind":"configmaps","retryAfterSeconds":1}`},
	})
}

// TestStatusOwnsNoMetadata has a kind for which an apply to the status owns none of the metadata in the request.
func TestStatusOwnsNoMetadata(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	const node = "/apis/storage.k8s.io/v1/csinodes/n"
	const applied = `{"apiVersion":"storage.k8s.io/v1","kind":"CSINode","metadata":{"name":"n","labels":{"a":"b"}},"status":{}}`
	s.Create("/apis/storage.k8s.io/v1/csinodes", `{"metadata":{"name":"n"},"spec":{"drivers":[]}}`)
	a := s.Send("PATCH", node+"/status?fieldManager=m", applied, "Content-Type", "application/apply-patch+yaml")
	if a.Status != http.StatusOK || strings.Contains(a.Body, "f:labels") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
