package core

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// stored is an object as it was in the store, and as it was served in one of its
// versions.
type stored struct {
	Resource, Key string
	Value         []byte
	Object        map[string]any
}

// TestStored decodes stored objects: defaults leave them as they are, and they
// read as they were served.
func TestStored(t *testing.T) {
	kinds := kindsByResource()
	for _, s := range readLines[stored](t, "stored") {
		k := kinds[s.Resource]
		path := "/registry/" + k.Storage.Path + "/"
		if !strings.HasPrefix(s.Key, path) || strings.Contains(s.Key[len(path):], "/") != k.Namespaced {
			t.Errorf("%s is not below %s", s.Key, path)
		}
		data, ok := bytes.CutPrefix(s.Value, []byte("k8s\x00"))
		var envelope runtime.Unknown
		if !ok || envelope.Unmarshal(data) != nil {
			t.Fatalf("%s: no envelope", s.Key)
		}
		if got := k.GVK(k.Storage.Version); envelope.APIVersion != got.GroupVersion().String() || envelope.Kind != k.Name {
			t.Errorf("%s: stored as %s %s, declared %v", s.Key, envelope.APIVersion, envelope.Kind, got)
		}
		obj := k.Version(k.Storage.Version).New()
		if err := obj.(interface{ Unmarshal([]byte) error }).Unmarshal(envelope.Raw); err != nil {
			t.Fatal(err)
		}
		version := &k.Versions[0]
		if group, _, _ := strings.Cut(s.Object["apiVersion"].(string), "/"); group == "events.k8s.io" {
			version = &k.Versions[1]
		}
		before := toTree(t, obj)
		if d := k.Versions[0].Default; d != nil {
			d(obj)
		}
		if k.Storage.DefaultOnRead != nil {
			// A new claim is stored without its phase.
			before["status"] = map[string]any{"phase": "Pending"}
		}
		if diff := difference("", before, toTree(t, obj)); len(diff) > 0 {
			t.Errorf("%s: defaults change it:\n%s", s.Key, strings.Join(diff, "\n"))
		}
		if version.FromStorage != nil {
			var err error
			if obj, err = version.FromStorage(context.Background(), obj); err != nil {
				t.Fatal(err)
			}
		}
		got, want := toTree(t, obj), s.Object
		for _, tree := range []map[string]any{got, want} {
			delete(tree, "apiVersion")
			delete(tree, "kind")
			remove(tree, "metadata.resourceVersion")
		}
		if diff := difference("", want, got); len(diff) > 0 {
			t.Errorf("%s: reads differently:\n%s", s.Key, strings.Join(diff, "\n"))
		}
		if version.ToStorage != nil {
			back, err := version.ToStorage(context.Background(), obj)
			if err != nil {
				t.Fatal(err)
			}
			if diff := difference("", before, toTree(t, back)); len(diff) > 0 {
				t.Errorf("%s: comes back changed:\n%s", s.Key, strings.Join(diff, "\n"))
			}
		}
	}
}
