package managedfields

import (
	"context"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// TestCreateTwin compares new objects, whose field sets come from tapes, with those of the general algorithm. Each
// object differs little from the one before, so that many have the same fields. All kinds and versions share a
// cache, as in a server.
func TestCreateTwin(t *testing.T) {
	cache := NewCache(8 << 20)
	kinds := slices.DeleteFunc(testKinds(), func(k testKind) bool {
		_, isTree := k.make().(*unstructured.Unstructured)
		return isTree
	})
	random := 150
	if !effort.Full() {
		random = 30
	}
	for i, k := range kinds {
		if k.reset == nil { // fields with the names of those that are reset may be deeper in an object too
			k.reset = reset(k.gvk.GroupVersion().String(), "status", "a")
		}
		var m *Manager
		f := filler{rand.New(rand.NewSource(int64(i)))}
		created, before := 0, len(cache.known)
		for n := range random {
			if n%50 == 0 {
				m = k.manager(t) // the second manager of the kind finds what the first one made
				m.config.Cache, m.incremental.cache = cache, cache
			}
			object := f.objectOf(k)
			for range 8 {
				want := m.updateGeneral(context.Background(), m.incremental.empty(), object.DeepCopyObject().(registry.Object), "one", testNow)
				got := object.DeepCopyObject().(registry.Object)
				if m.incremental.update(m.incremental.empty(), got, "one", testNow) {
					created++
					if described(got) != described(want) {
						t.Fatalf("%v: %s\nwant\n%s", k.gvk, described(got), described(want))
					}
				}
				f.mutate(reflect.ValueOf(object).Elem(), 0)
				object.SetManagedFields(nil)
			}
		}
		tapes := len(cache.known) - before
		if created < random*5 || tapes > created*3/4 {
			t.Errorf("%v%s: %d objects without the general algorithm, %d tapes", k.gvk, k.sub, created, tapes)
		}
	}
}

// TestTapesOfTwoManagers: two managers write the same objects, and one of them resets a field.
func TestTapesOfTwoManagers(t *testing.T) {
	cache := NewCache(1 << 20)
	config := named("ConfigMap", "")
	for _, c := range []struct {
		sub  string
		want bool
	}{{"", true}, {"resets", false}, {"", true}} {
		k := config
		if k.sub = c.sub; c.sub != "" {
			k.reset = reset("v1", "data.a")
		}
		m := k.manager(t)
		m.config.Cache, m.incremental.cache = cache, cache
		object := benchConfigMap()
		m.Update(context.Background(), nil, object, "one", testNow)
		if got := strings.Contains(object.ManagedFields[0].FieldsV1.GetRawString(), `"f:a"`); got != c.want {
			t.Errorf("subresource %q: the manager owns the field: %v", c.sub, got)
		}
	}
}
