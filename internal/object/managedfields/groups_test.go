package managedfields

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/mergeschema"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
)

// TestVersionsInTwoGroups applies to existing events through each of the two groups that serve them. The event was
// written before through the same or the other group.
func TestVersionsInTwoGroups(t *testing.T) {
	var events *registry.Kind
	for _, k := range resource.Kinds(features.Gates{}) {
		if k.Resource == "events" {
			events = k
		}
	}
	manager := func(gv schema.GroupVersion) *Manager {
		m, err := For(events, gv.WithKind("Event"), "", mergeschema.Converter{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	old, current := manager(corev1.SchemeGroupVersion), manager(eventsv1.SchemeGroupVersion)
	meta := metav1.ObjectMeta{Name: "e", Namespace: "n", UID: "u"}
	written := map[string]registry.Object{
		"v1": old.Update(context.Background(), nil, &corev1.Event{ObjectMeta: meta, Message: "m"}, "one", testNow),
	}
	inNew := current.Update(
		context.Background(), nil, &eventsv1.Event{ObjectMeta: meta, Note: "m"}, "one", testNow,
	).(*eventsv1.Event)
	written["events.k8s.io/v1"] = &corev1.Event{ObjectMeta: inNew.ObjectMeta, Message: inNew.Note}
	for by, live := range written {
		inCurrent, err := events.Versions[1].FromStorage(context.Background(), live.DeepCopyObject().(registry.Object))
		if err != nil {
			t.Fatal(err)
		}
		configuration := func(apiVersion, member string) map[string]any {
			return map[string]any{
				"apiVersion": apiVersion, "kind": "Event", "metadata": map[string]any{"name": "e", "namespace": "n"}, member: "x",
			}
		}
		got, err := current.Apply(
			context.Background(), inCurrent, configuration("events.k8s.io/v1", "note"), "two", true, testNow,
		)
		if err != nil {
			t.Errorf("written as %s: apply as events.k8s.io/v1: %v", by, err)
		} else if e := got.(*eventsv1.Event); e.Note != "x" || len(e.ManagedFields) == 0 {
			t.Errorf("written as %s: %+v", by, e)
		}
		if got, err = old.Apply(
			context.Background(), live, configuration("v1", "message"), "two", true, testNow,
		); err != nil {
			t.Errorf("written as %s: apply as v1: %v", by, err)
		} else if e := got.(*corev1.Event); e.Message != "x" || len(e.ManagedFields) == 0 {
			t.Errorf("written as %s: %+v", by, e)
		}
	}
}
