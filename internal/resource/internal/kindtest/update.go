package kindtest

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// recordedUpdates is a recorded create and independent updates of the created object.
type recordedUpdates struct {
	created
	Updates []struct {
		Name     string
		Body     json.RawMessage
		Expect   map[string]any // nil if the update was rejected
		Causes   []string       // of the rejection
		Warnings []string
	}
}

// updates checks the results of accepted updates, and that strategies reject updates only for
// the recorded reasons. It counts recorded causes that no strategy returns yet.
func updates(t *testing.T, kinds []*registry.Kind, o Options) {
	var given, missing int
	for c := range read[recordedUpdates](t, "update.jsonl.gz", ".update.gz") {
		kind := find(t, kinds, c.Resource)
		old, err := create(kind, c.created)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		for _, u := range c.Updates {
			if o.Skip[u.Name] != "" {
				continue
			}
			obj, err := decode(kind, c.Version, u.Body)
			if err != nil {
				t.Errorf("%s: %v", u.Name, err)
				continue
			}
			update(kind, obj, old)
			var causes []string
			if f := kind.Strategy.ValidateUpdate; f != nil {
				for _, err := range f(context.Background(), obj, old) {
					causes = append(causes, err.Field+": "+err.ErrorBody())
				}
			}
			if u.Expect == nil {
				for _, cause := range causes {
					normalCause := func(s string) string { return normal(s).(string) }
					if !slices.ContainsFunc(u.Causes, func(w string) bool { return normalCause(w) == normalCause(cause) }) {
						t.Errorf("%s: refused for %s, want %q", u.Name, cause, u.Causes)
					}
				}
				for _, w := range u.Causes {
					if strings.Contains(w, "immutable") || strings.Contains(w, "Forbidden") {
						missing++
					}
				}
				given += len(causes)
				continue
			}
			if len(causes) > 0 {
				t.Errorf("%s: refused: %q", u.Name, causes)
				continue
			}
			var warned []string
			if f := kind.Strategy.Warn; f != nil {
				warned = f(obj, old)
				slices.Sort(warned)
			}
			if want := (created{Warnings: u.Warnings}).warnings(t); !slices.Equal(warned, want) {
				t.Errorf("%s: warnings %q, want %q", u.Name, warned, want)
			}
			if obj, err = storeAndRead(kind, obj); err != nil {
				t.Errorf("%s: %v", u.Name, err)
				continue
			}
			shown := show(t, kind, c.Version, obj)
			removeAll(slices.Concat(o.SetByOthers[c.Resource],
				[]string{"metadata.managedFields", "metadata.namespace", "metadata.uid", "metadata.creationTimestamp",
					"metadata.resourceVersion", "metadata.selfLink"}), shown, u.Expect)
			if d := diff("", normal(shown), normal(u.Expect)); d != "" {
				t.Errorf("%s: %s\nsent %s", u.Name, d, u.Body)
			}
		}
	}
	if missing > given {
		t.Logf("immutable or forbidden: strategies give %d causes of %d recorded", given, missing)
	}
}

// update does to obj what the generic pipeline does with an update of old before validation, and returns it.
// The status is that of old, as a copy: a write to the main resource cannot change it.
func update(kind *registry.Kind, obj, old registry.Object) registry.Object {
	obj.SetUID(old.GetUID())
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	obj.SetManagedFields(nil)
	obj.SetGeneration(old.GetGeneration())
	obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
	obj.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	if f := kind.Strategy.Status; f != nil {
		kept := old.DeepCopyObject().(registry.Object)
		reflect.ValueOf(f(obj)).Elem().Set(reflect.ValueOf(f(kept)).Elem())
	}
	if f := kind.Strategy.PrepareUpdate; f != nil {
		f(obj, old)
	}
	if content := kind.Strategy.Generation; content != nil && !equality.Semantic.DeepEqual(content(obj), content(old)) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
	return obj
}
