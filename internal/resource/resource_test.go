package resource

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// listed is an entry of kube-apiserver's discovery.
type listed struct {
	GroupVersion, Name, SingularName, Group, Version, Kind string
	Namespaced                                             bool
	Verbs, ShortNames, Categories                          []string
}

// TestDiscovery compares the declarations with kube-apiserver's discovery documents, including the order.
func TestDiscovery(t *testing.T) {
	want := readDiscovery(t)
	got := map[string][]listed{}
	var order []string
	add := func(gv string, entries ...listed) {
		if _, there := got[gv]; !there {
			order = append(order, gv)
		}
		got[gv] = append(got[gv], entries...)
	}
	for _, k := range Kinds(features.Gates{}) {
		for _, v := range k.Versions {
			if v.Disabled {
				continue
			}
			group := k.Group
			if v.Group != "" {
				group = v.Group
			}
			gv := group + "/" + v.Name
			if group == "" {
				gv = v.Name
			}
			add(gv, entries(gv, k)...)
		}
	}
	for gv, entries := range want {
		for i, w := range entries {
			if i >= len(got[gv]) {
				t.Errorf("%s: missing %s", gv, w.Name)
				continue
			}
			if g := got[gv][i]; !same(g, w) {
				t.Errorf("%s:\ngot  %+v\nwant %+v", gv, g, w)
			}
		}
		if len(got[gv]) > len(entries) {
			t.Errorf("%s: %d entries, want %d", gv, len(got[gv]), len(entries))
		}
	}
	for _, gv := range order {
		if want[gv] == nil {
			t.Errorf("%s is not served by kube-apiserver", gv)
		}
	}
}

// entries returns a kind and its subresources as entries of discovery.
func entries(gv string, k *registry.Kind) []listed {
	verbs := k.Requests.Verbs
	if verbs == nil {
		verbs = registry.AllVerbs
	}
	out := []listed{{
		GroupVersion: gv, Name: k.Resource, SingularName: k.SingularName(), Kind: k.Name,
		Namespaced: k.Namespaced, Verbs: verbs, ShortNames: k.ShortNames, Categories: k.Categories,
	}}
	for _, s := range k.Subresources {
		if s.Name == "" {
			continue // serves the resource itself
		}
		e := listed{
			GroupVersion: gv, Name: k.Resource + "/" + s.Name, Kind: k.Name, Namespaced: k.Namespaced,
			Verbs: s.Verbs,
		}
		// Discovery names the version if it differs from the version of the list.
		if own := s.GVK.GroupVersion(); !own.Empty() && own.String() != gv {
			e.Group, e.Version = own.Group, own.Version
		}
		if s.GVK.Kind != "" {
			e.Kind = s.GVK.Kind
		}
		out = append(out, e)
	}
	return out
}

func same(a, b listed) bool {
	sorted := func(s []string) []string { return slices.Sorted(slices.Values(s)) }
	return a.Name == b.Name && a.SingularName == b.SingularName && a.Group == b.Group && a.Version == b.Version &&
		a.Kind == b.Kind && a.Namespaced == b.Namespaced && slices.Equal(sorted(a.Verbs), sorted(b.Verbs)) &&
		slices.Equal(a.ShortNames, b.ShortNames) && slices.Equal(a.Categories, b.Categories)
}

func readDiscovery(t *testing.T) map[string][]listed {
	f, err := os.Open("testdata/discovery.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string][]listed{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e listed
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		out[e.GroupVersion] = append(out[e.GroupVersion], e)
	}
	return out
}

// TestOrder checks that groups have the order of /apis.
func TestOrder(t *testing.T) {
	var want []string
	f, err := os.ReadFile("testdata/discovery.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(f) {
		var e listed
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		group, version, _ := strings.Cut(e.GroupVersion, "/")
		if version == "" {
			group = ""
		}
		if group != "events.k8s.io" && (len(want) == 0 || want[len(want)-1] != group) {
			want = append(want, group)
		}
	}
	var got []string
	for _, k := range Kinds(features.All()) {
		if len(got) == 0 || got[len(got)-1] != k.Group {
			got = append(got, k.Group)
		}
	}
	// kube-apiserver does not serve these by default.
	want = append(slices.Insert(want, len(want)-1, "internal.apiserver.k8s.io"), "lifecycle.k8s.io")
	if !slices.Equal(got, want) {
		t.Errorf("groups %q, want %q", got, want)
	}
}

// TestUpdatesWithoutResourceVersion lists the kinds whose updates must name the resource version that they
// replace.
func TestUpdatesWithoutResourceVersion(t *testing.T) {
	var got []string
	for _, k := range Kinds(features.All()) {
		if k.HasVerb("update") && !k.Requests.UnconditionalUpdate {
			got = append(got, k.Resource)
		}
	}
	slices.Sort(got)
	want := []string{
		"apiservices", "clustertrustbundles", "compositepodgroups", "csidrivers", "csinodes", "csistoragecapacities",
		"customresourcedefinitions", "evictionrequests", "evictions", "leasecandidates", "leases",
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations",
		"podcertificaterequests", "poddisruptionbudgets", "podgroups", "resourcepoolstatusrequests",
		"runtimeclasses", "storageversionmigrations", "storageversions", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
		"validatingwebhookconfigurations",
		"volumeattachments", "workloads",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestUpdatesThatCreate lists the resources of which a PUT creates a missing object, as in kube-apiserver 1.37.2.
func TestUpdatesThatCreate(t *testing.T) {
	var got []string
	for _, k := range Kinds(features.All()) {
		if k.Requests.CreateOnUpdate {
			got = append(got, k.Resource)
		}
	}
	slices.Sort(got)
	want := []string{
		"clusterrolebindings", "clusterroles", "endpoints", "events", "leasecandidates", "leases", "limitranges", "rolebindings", "roles",
		"runtimeclasses", "services",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
