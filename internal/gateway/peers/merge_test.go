package peers

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMergeOrder(t *testing.T) {
	for text, want := range map[string]string{
		"":              "",
		"a b c":         "a b c",
		"c b a":         "c b a",
		"a b c|b c":     "a b c",
		"b c|a b c":     "a b c",
		"a c|b c":       "a b c",
		"b|a":           "a b",
		"c a|c b":       "c a b",
		"z a|b":         "b z a",
		"v2 v1|v3 v1":   "v2 v3 v1",
		"a b|b a":       "a b",     // each list has all names: the first one counts
		"a b c|c a d":   "a b c d", // they contradict each other
		"b a|a c|c b d": "a b c d",
	} {
		var lists [][]string
		for list := range strings.SplitSeq(text, "|") {
			lists = append(lists, strings.Fields(list))
		}
		if got := strings.Join(mergeOrder(lists), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestMergeOrderKeepsOrders merges random sublists of one order. The result has each name once, and names that follow each other in
// a list are in this order.
func TestMergeOrderKeepsOrders(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		order := strings.Split("qwertyuiopasdf", "")
		var lists [][]string
		want := map[string]bool{}
		for range 1 + r.IntN(4) {
			var list []string
			for _, name := range order {
				if r.IntN(3) > 0 {
					list = append(list, name)
					want[name] = true
				}
			}
			lists = append(lists, list)
		}
		got := mergeOrder(lists)
		seen := map[string]bool{}
		for _, name := range got {
			seen[name] = true
		}
		if len(got) != len(want) || !reflect.DeepEqual(seen, want) {
			t.Fatalf("seed %d: %q of %q", seed, got, lists)
		}
		for _, list := range lists {
			if !slices.IsSortedFunc(list, func(a, b string) int { return slices.Index(got, a) - slices.Index(got, b) }) {
				t.Fatalf("seed %d: %q of %q", seed, got, lists)
			}
		}
	}
}

// groupsOf makes groups from "group/version:resource(verb verb),resource;group/...".
func groupsOf(text string) []apidiscovery.APIGroupDiscovery {
	var out []apidiscovery.APIGroupDiscovery
	for part := range strings.SplitSeq(text, ";") {
		gv, resources, _ := strings.Cut(part, ":")
		group, version, _ := strings.Cut(gv, "/")
		v := apidiscovery.APIVersionDiscovery{Version: version, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
		for r := range strings.SplitSeq(resources, ",") {
			name, verbs, _ := strings.Cut(strings.TrimSuffix(r, ")"), "(")
			v.Resources = append(v.Resources, apidiscovery.APIResourceDiscovery{
				Resource: name, Verbs: strings.Fields(verbs), ResponseKind: &metav1.GroupVersionKind{Kind: "K"},
			})
		}
		if n := len(out); n > 0 && out[n-1].Name == group {
			out[n-1].Versions = append(out[n-1].Versions, v)
			continue
		}
		out = append(out, apidiscovery.APIGroupDiscovery{
			ObjectMeta: metav1.ObjectMeta{Name: group}, Versions: []apidiscovery.APIVersionDiscovery{v},
		})
	}
	return out
}

// textOf is the opposite of groupsOf.
func textOf(groups []apidiscovery.APIGroupDiscovery) string {
	var out []string
	for _, g := range groups {
		for _, v := range g.Versions {
			var resources []string
			for _, r := range v.Resources {
				text := r.Resource
				if len(r.Verbs) > 0 {
					text += fmt.Sprintf("(%s)", strings.Join(r.Verbs, " "))
				}
				for _, s := range r.Subresources {
					text += "/" + s.Subresource
				}
				resources = append(resources, text)
			}
			out = append(out, g.Name+"/"+v.Version+":"+strings.Join(resources, ","))
		}
	}
	return strings.Join(out, ";")
}

func TestMergeGroups(t *testing.T) {
	for _, test := range []struct{ a, b, want string }{
		{"apps/v1:x(get)", "apps/v1:x(get)", "apps/v1:x(get)"},
		{"apps/v1:x(watch get)", "apps/v1:x(watch get)", "apps/v1:x(watch get)"}, // equal resources stay as they are
		{"apps/v1:x(watch get)", "apps/v1:x(list get)", "apps/v1:x(get list watch)"},
		{"apps/v1:x,y", "apps/v1:y,z", "apps/v1:x,y,z"},
		{"apps/v2:x;apps/v1:x", "apps/v1:x", "apps/v2:x;apps/v1:x"},
		{"apps/v1:x", "apps/v2:x;apps/v1:x", "apps/v2:x;apps/v1:x"},
		{"apps/v1:x;batch/v1:j", "policy/v1:p", "apps/v1:x;batch/v1:j;policy/v1:p"},
		{"apps/v1:x;policy/v1:p", "apps/v1:x;batch/v1:j;policy/v1:p", "apps/v1:x;batch/v1:j;policy/v1:p"},
	} {
		for _, servers := range []map[string][]apidiscovery.APIGroupDiscovery{
			{"a": groupsOf(test.a), "b": groupsOf(test.b)}, {"a": groupsOf(test.b), "b": groupsOf(test.a)},
		} {
			if got := textOf(mergeGroups(servers)); got != test.want {
				t.Errorf("%q and %q: %q, want %q", test.a, test.b, got, test.want)
			}
		}
	}
}

// TestMergeDoesNotChangeItsInput merges documents that differ everywhere.
func TestMergeDoesNotChangeItsInput(t *testing.T) {
	make := func() map[string][]apidiscovery.APIGroupDiscovery {
		a, b := groupsOf("apps/v1:x(watch get),y;batch/v1:j"), groupsOf("apps/v2:x;apps/v1:y,x(list);policy/v1:p")
		a[0].Versions[0].Resources[0].Subresources = []apidiscovery.APISubresourceDiscovery{{Subresource: "status"}}
		b[0].Versions[1].Resources[1].Subresources = []apidiscovery.APISubresourceDiscovery{{Subresource: "scale"}}
		return map[string][]apidiscovery.APIGroupDiscovery{"a": a, "b": b}
	}
	in := make()
	if got, want := textOf(mergeGroups(in)), "apps/v2:x;apps/v1:x(get list watch)/scale/status,y;batch/v1:j;policy/v1:p"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if !reflect.DeepEqual(in, make()) {
		t.Error("the input has changed")
	}
}
