package registry_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/write/writetest"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// TestWhatCannotBeShownIsNotStored checks that a create and an update refuse an object that
// could be stored but could not be encoded for a response.
func TestWhatCannotBeShownIsNotStored(t *testing.T) {
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	kept := cache.New(cache.Options{Store: store})
	defer kept.Close()
	all, err := registry.New(resource.Kinds(features.Gates{}), store, kept, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	r := all.Resource(schema.GroupResource{Group: "apps", Resource: "controllerrevisions"})
	revision := func(data string) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "default"}, Data: runtime.RawExtension{Raw: []byte(data)},
		}
	}
	stored := func() int64 {
		view, err := r.Reader.Current(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		o, ok, err := view.Get(t.Context(), r.Key("default", "r"))
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return 0
		}
		return o.Revision
	}
	const broken = `{"a":`
	if _, err := writer.Create(t.Context(), r, "default", revision(broken), writetest.Options{}); err == nil ||
		stored() != 0 {
		t.Errorf("created: %v; stored at revision %d", err, stored())
	}
	if t.Failed() {
		return
	}
	if _, err := writer.Create(t.Context(), r, "default", revision(`{"a":1}`), writetest.Options{}); err != nil {
		t.Fatal(err)
	}
	before := stored()
	_, err = writer.Amend(t.Context(), r, "default", "r", false, func(current registry.Object) error {
		current.(*appsv1.ControllerRevision).Data.Raw = []byte(broken)
		return nil
	})
	if err == nil || stored() != before {
		t.Errorf("updated: %v; stored at revision %d, before at %d", err, stored(), before)
	}
}
