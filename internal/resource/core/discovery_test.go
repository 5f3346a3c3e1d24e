package core

import (
	"encoding/json"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"os"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDiscovery compares what is declared with the recorded list of resources,
// in its order.
func TestDiscovery(t *testing.T) {
	data, err := os.ReadFile("testdata/discovery.json")
	if err != nil {
		t.Fatal(err)
	}
	var want []metav1.APIResource
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	var got []metav1.APIResource
	for _, k := range Kinds(features.Gates{}) {
		r := metav1.APIResource{
			Name: k.Resource, SingularName: k.SingularName(), Namespaced: k.Namespaced, Kind: k.Name,
			ShortNames: k.ShortNames, Categories: k.Categories,
		}
		for _, verb := range []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"} {
			if k.HasVerb(verb) {
				r.Verbs = append(r.Verbs, verb)
			}
		}
		got = append(got, r)
		for _, s := range k.Subresources {
			if s.Name == "" {
				continue
			}
			sub := metav1.APIResource{Name: k.Resource + "/" + s.Name, Namespaced: k.Namespaced, Kind: k.Name, Verbs: s.Verbs}
			if s.GVK.Kind != "" {
				sub.Kind = s.GVK.Kind
				if s.GVK.Group != "" {
					sub.Group, sub.Version = s.GVK.Group, s.GVK.Version
				}
			}
			got = append(got, sub)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d resources, want %d", len(got), len(want))
	}
	for i := range want {
		w, g := want[i], got[i]
		w.StorageVersionHash = ""
		if !slices.Equal(w.ShortNames, g.ShortNames) || !slices.Equal(w.Verbs, g.Verbs) ||
			!slices.Equal(w.Categories, g.Categories) ||
			w.Name != g.Name || w.SingularName != g.SingularName || w.Kind != g.Kind || w.Group != g.Group ||
			w.Version != g.Version || w.Namespaced != g.Namespaced {
			t.Errorf("got  %+v\nwant %+v", g, w)
		}
	}
}
