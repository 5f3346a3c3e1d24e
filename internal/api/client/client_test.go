package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/client/clienttest"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

func newClient(t *testing.T) *client.Client {
	t.Helper()
	c, _ := newClientOn(t)
	return c
}

func newClientOn(t *testing.T) (*client.Client, *registry.Registry) {
	t.Helper()
	api := clienttest.New(t, "", "tester")
	return api.Client, api.Registry
}

// TestObjects creates, changes and deletes an object, and checks what a watch returns.
func TestObjects(t *testing.T) {
	c := newClient(t)
	ref := client.Ref{Resource: configMaps, Namespace: "ns", Name: "a"}
	if _, err := c.Get(t.Context(), ref); !kerrors.IsNotFound(err) {
		t.Errorf("get of what is not there: %v", err)
	}
	from, err := c.List(t.Context(), client.ListRequest{Resource: configMaps}, func(registry.Object) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(t.Context(), client.WatchRequest{Resource: configMaps, From: from})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()

	created := &corev1.ConfigMap{Data: map[string]string{"k": "1"}}
	created.Namespace, created.Name = "ns", "a"
	if _, err := c.Create(t.Context(), client.CreateRequest{Resource: configMaps, Object: created}); err != nil {
		t.Fatal(err)
	}
	again := &corev1.ConfigMap{}
	again.Namespace, again.Name = "ns", "a"
	if _, err := c.Create(
		t.Context(), client.CreateRequest{Resource: configMaps, Object: again},
	); !kerrors.IsAlreadyExists(err) {
		t.Errorf("a second create: %v", err)
	}
	obj, err := c.Update(t.Context(), client.UpdateRequest{Ref: ref, Change: func(obj registry.Object) error {
		obj.(*corev1.ConfigMap).Data["k"] = "2"
		return nil
	}})
	if err != nil || obj.(*corev1.ConfigMap).Data["k"] != "2" || obj.GetManagedFields()[0].Manager != "tester" {
		t.Errorf("updated: %v %v", obj, err)
	}
	configuration := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"3"}}`)
	if _, err := c.As("other").Apply(
		t.Context(), client.ApplyRequest{Ref: ref, Configuration: configuration},
	); err != nil {
		t.Errorf("an apply of another manager's field: %v", err)
	}
	if obj, err = c.Get(t.Context(), ref); err != nil || obj.(*corev1.ConfigMap).Data["k"] != "3" {
		t.Errorf("%v %v", obj, err)
	}
	found := 0
	for _, namespace := range []string{"ns", "other"} {
		if _, err := c.List(t.Context(), client.ListRequest{
			Resource: configMaps, Namespace: namespace,
		}, func(registry.Object) bool {
			found++
			return true
		}); err != nil {
			t.Error(err)
		}
	}
	if found != 1 {
		t.Errorf("%d objects were listed in two namespaces, of which one has an object", found)
	}
	if gone, err := c.Delete(t.Context(), client.DeleteRequest{Ref: ref}); err != nil || !gone {
		t.Errorf("deleted: %v %v", gone, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var seen []watch.EventType
	for len(seen) < 4 {
		changes, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("waiting for four changes, of which %v came: %v", seen, err)
		}
		for _, change := range changes {
			seen = append(seen, change.Type)
		}
	}
	if seen[0] != watch.Added || seen[1] != watch.Modified || seen[2] != watch.Modified || seen[3] != watch.Deleted {
		t.Errorf("the watch saw %v", seen)
	}
}

// TestUnknown checks that requests for a resource that is not served get 404, as over HTTP.
func TestUnknown(t *testing.T) {
	c := newClient(t)
	ref := client.Ref{
		Resource: schema.GroupVersionResource{Group: "none.example.com", Version: "v1", Resource: "things"}, Name: "a",
	}
	if _, err := c.Get(t.Context(), ref); !kerrors.IsNotFound(err) {
		t.Errorf("resource: %v", err)
	}
	ref = client.Ref{Resource: configMaps, Namespace: "ns", Name: "a"}
	if _, err := c.Update(t.Context(), client.UpdateRequest{Ref: ref, Subresource: "status"}); !kerrors.IsNotFound(err) {
		t.Errorf("subresource: %v", err)
	}
}

// TestUpdateOfWhatIsMissing checks that an update fails if there is no object, also for kinds whose PUT creates a
// missing object.
func TestUpdateOfWhatIsMissing(t *testing.T) {
	c := newClient(t)
	for _, gvr := range []schema.GroupVersionResource{
		configMaps, {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	} {
		_, err := c.Update(t.Context(), client.UpdateRequest{
			Ref:    client.Ref{Resource: gvr, Namespace: "ns", Name: "missing"},
			Change: func(registry.Object) error { return nil },
		})
		if !kerrors.IsNotFound(err) {
			t.Errorf("%v: %v", gvr, err)
		}
	}
}

// TestDeletionsLoadNothing: deleting many objects one by one does not bring all objects of their resource into memory.
func TestDeletionsLoadNothing(t *testing.T) {
	c, reg := newClientOn(t)
	const objects, deleted = 6000, 3000
	name := func(i int) string { return fmt.Sprintf("object-%04d", i) }
	for i := range objects {
		m := &corev1.ConfigMap{}
		m.Namespace, m.Name = "ns", name(i)
		if _, err := c.Create(t.Context(), client.CreateRequest{Resource: configMaps, Object: m}); err != nil {
			t.Fatal(err)
		}
	}
	r := reg.Resource(configMaps.GroupResource())
	if r.Reader.Loaded() {
		t.Fatal("so many objects are in memory that nobody has read")
	}
	for i := range deleted {
		ref := client.Ref{Resource: configMaps, Namespace: "ns", Name: name(i)}
		if _, err := c.Delete(t.Context(), client.DeleteRequest{Ref: ref}); err != nil {
			t.Fatal(err)
		}
		if r.Reader.Loaded() {
			t.Fatalf("all objects are in memory after %d deletions", i+1)
		}
	}
}
