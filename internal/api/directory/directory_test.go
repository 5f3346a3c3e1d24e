package directory

import (
	"context"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	v1 = schema.GroupVersion{Group: "example.com", Version: "v1"}
	v2 = schema.GroupVersion{Group: "example.com", Version: "v2"}
)

func resource(gv schema.GroupVersion, name string, source Source) *Resource {
	return &Resource{GVR: gv.WithResource(name), Source: source, Describe: func() []metav1.APIResource {
		return []metav1.APIResource{{Name: name}, {Name: name + "/status"}}
	}}
}

func TestFind(t *testing.T) {
	d := New()
	builtIn, custom := resource(v1, "widgets", BuiltIn), resource(v1, "gadgets", Custom)
	d.Put(builtIn)
	d.Put(custom)
	d.Put(resource(v1, "widgets", Custom)) // the built-in one stays
	if d.Find(builtIn.GVR) != builtIn || d.Find(custom.GVR) != custom || d.Find(v2.WithResource("widgets")) != nil {
		t.Error("Find does not return what was put")
	}
	d.Remove(builtIn.GVR, Custom)
	if d.Find(builtIn.GVR) != builtIn {
		t.Error("a built-in resource was removed as a custom one")
	}
	announced := resource(v1, "gadgets", Custom)
	announced.Announced = true
	d.Put(announced)
	if d.Find(custom.GVR) != nil {
		t.Error("Find returns a resource that is only announced")
	}
	if got := d.Resources(v1); len(got) != 2 || !slices.Contains(got, announced) {
		t.Errorf("Resources returns %v", got)
	}
	d.Remove(custom.GVR, Custom)
	if got := d.Resources(v1); len(got) != 1 || d.HasSource("example.com", Custom) ||
		!d.HasSource("example.com", BuiltIn) {
		t.Errorf("after Remove: %v", got)
	}
}

// TestHidden: a hidden resource is served, but it is in no list. A custom resource does not replace it.
func TestHidden(t *testing.T) {
	d := New()
	hidden := resource(v1, "widgets", BuiltIn)
	hidden.Hidden = true
	d.Put(hidden)
	d.Put(resource(v1, "widgets", Custom))
	if d.Find(hidden.GVR) != hidden {
		t.Error("Find does not return a hidden resource")
	}
	if d.Has(v1.Group, v1.Version, "widgets") || len(d.GroupVersions()) > 0 || d.HasSource(v1.Group, BuiltIn) {
		t.Error("a hidden resource is listed")
	}
}

// TestHiddenAfterCustom deletes a definition that was stored before the program had a hidden resource of the same
// name. The hidden resource must stay.
func TestHiddenAfterCustom(t *testing.T) {
	d := New()
	hidden := resource(v1, "widgets", BuiltIn)
	hidden.Hidden = true
	d.Put(resource(v1, "widgets", Custom))
	d.Put(resource(v1, "gadgets", Custom))
	w := d.Watch()
	defer w.Close()
	w.Take()
	d.Put(hidden)
	if changed := w.Take(); !slices.Equal(changed, []schema.GroupVersion{v1}) {
		t.Errorf("watchers are told of %v", changed)
	}
	if got := d.Resources(v1); len(got) != 1 || d.Has(v1.Group, v1.Version, "widgets") {
		t.Errorf("beside the hidden resource a custom one is listed: %v", got)
	}
	d.Remove(hidden.GVR, Custom)
	if d.Find(hidden.GVR) != hidden {
		t.Error("the hidden resource is gone with the custom one")
	}
	d.Remove(v1.WithResource("gadgets"), Custom)
	d.Put(resource(v1, "widgets", Custom)) // refused
	if d.Find(hidden.GVR) != hidden || len(d.GroupVersions()) > 0 {
		t.Error("a custom resource took the place of the hidden one")
	}
}

func TestHas(t *testing.T) {
	d := New()
	d.Put(resource(v1, "widgets", Custom))
	shapeless := resource(v1, "gadgets", Custom)
	shapeless.Describe = nil
	d.Put(shapeless)
	for name, want := range map[string]bool{
		"widgets": true, "widgets/status": true, "widgets/scale": false, "widgets/": false, "status": false,
		"gadgets": false, "": false,
	} {
		if d.Has("example.com", "v1", name) != want {
			t.Errorf("Has(%q) is %v", name, !want)
		}
	}
	if d.Has("example.com", "v2", "widgets") {
		t.Error("a version without resources has one")
	}
}

func TestWatcher(t *testing.T) {
	d := New()
	d.Put(resource(v1, "widgets", BuiltIn))
	w := d.Watch()
	next := func() []schema.GroupVersion {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		changed, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("waited for a change: %v", err)
		}
		return changed
	}
	first := next()
	if !slices.Equal(first, []schema.GroupVersion{v1}) {
		t.Errorf("at first %v", first)
	}
	if changed := w.Take(); changed != nil {
		t.Errorf("nothing changed, and Take returns %v", changed)
	}
	go func() {
		d.Put(resource(v2, "widgets", Custom))
	}()
	if changed := next(); !slices.Equal(changed, []schema.GroupVersion{v2}) {
		t.Errorf("after Put %v", changed)
	}
	d.Remove(v2.WithResource("widgets"), Custom)
	d.Put(resource(v1, "gadgets", Custom))
	d.Put(resource(v1, "gadgets", Custom))
	if changed := w.Take(); len(changed) != 2 || !slices.Contains(changed, v1) || !slices.Contains(changed, v2) {
		t.Errorf("after two changes %v", changed)
	}
	if !slices.Equal(first, []schema.GroupVersion{v1}) {
		t.Error("what was returned has changed")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Next(ended); err == nil {
		t.Error("Next returned without a change")
	}
	w.Close()
	d.Put(resource(v1, "gadgets", Custom))
	if changed := w.Take(); changed != nil {
		t.Errorf("after Close %v", changed)
	}
}
