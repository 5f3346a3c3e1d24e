package garbagecollector

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// checkIndexes compares the indexes of each node in the graph with indexes that are computed from the owners of
// all nodes.
func checkIndexes(t *testing.T, g *graph, want map[types.UID]client.Metadata) {
	t.Helper()
	dependents := map[types.UID]map[types.UID]bool{}
	blocking := map[types.UID]int{}
	for uid, m := range want {
		n := g.nodes[uid]
		if at, _ := g.plain.find(uid); at != nil {
			if n != nil || len(m.Owners) > 0 || m.Deleting || at.namespace != m.Namespace {
				t.Fatalf("%s is among the plain objects of %q, with the node %+v; want %+v", uid, at.namespace, n, m)
			}
			continue
		}
		if n == nil || n.missing() || n.name != m.Name || n.location.namespace != m.Namespace ||
			len(n.owners) != len(m.Owners) {
			t.Fatalf("%s is %+v in the graph, want %+v", uid, n, m)
		}
		blocked := map[types.UID]bool{}
		for _, o := range m.Owners {
			if dependents[o.UID] == nil {
				dependents[o.UID] = map[types.UID]bool{}
			}
			dependents[o.UID][uid] = true
			blocked[o.UID] = blocked[o.UID] || *o.BlockOwnerDeletion
		}
		for owner, blocks := range blocked {
			if blocks {
				blocking[owner]++
			}
		}
	}
	for uid, n := range g.nodes {
		if !n.missing() && isPlain(n.location, new(want[uid])) && len(n.dependents) == 0 {
			t.Fatalf("the plain object %s has a node: %+v", uid, n)
		}
		if _, ok := want[uid]; !ok && (!n.missing() || len(n.dependents) == 0) {
			t.Fatalf("%s is in the graph: %+v", uid, n)
		}
		got := map[types.UID]bool{}
		for d := range n.dependents {
			got[d.uid] = true
		}
		if !maps.Equal(got, dependents[uid]) || n.blocking != blocking[uid] {
			t.Fatalf("%s has the dependents %v, %d of which block it; want %v, %d",
				uid, got, n.blocking, dependents[uid], blocking[uid])
		}
		delete(dependents, uid)
	}
	if len(g.plain.byUID) > len(want) {
		t.Fatalf("%d objects are plain, of %d", len(g.plain.byUID), len(want))
	}
	if len(dependents) > 0 {
		t.Fatalf("the graph lacks the owners %v", dependents)
	}
}

// TestGraphIndexes changes objects at random, and compares the indexes of the graph with the objects after each change.
func TestGraphIndexes(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		g, want := newGraph(), map[types.UID]client.Metadata{}
		resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
		locations := map[string]*location{}
		for _, namespace := range []string{"", "a", "b"} {
			locations[namespace] = &location{resource: resource, apiVersion: "v1", kind: "ConfigMap", namespace: namespace}
		}
		for step := range int64(400) {
			if step == 100 {
				g.listed()
			}
			uid := uidOf(fmt.Sprint(r.IntN(12)))
			if r.IntN(4) == 0 {
				g.remove(resource.GroupResource(), uid)
				delete(want, uid)
			} else {
				m := client.Metadata{
					Name: "name-" + string(uid), Namespace: []string{"", "a", "b"}[r.IntN(3)], Revision: step + 1,
					Lifecycle: registry.Lifecycle{UID: uid, Deleting: r.IntN(3) == 0},
				}
				owners := r.IntN(4)
				if r.IntN(8) == 0 {
					owners = r.IntN(3 * shortList)
				}
				if before, ok := want[uid]; ok && r.IntN(4) == 0 {
					owners, m.Owners = 0, before.Owners
				}
				for range owners {
					of := uidOf(fmt.Sprint(r.IntN(14)))
					m.Owners = append(m.Owners, metav1.OwnerReference{
						APIVersion: "v1", Kind: "ConfigMap", Name: "name-" + string(of), UID: of,
						BlockOwnerDeletion: new(r.IntN(2) == 0),
					})
				}
				if r.IntN(3) == 0 {
					m.Finalizers = []string{metav1.FinalizerDeleteDependents}
				}
				want[uid] = m
				g.set(locations[m.Namespace], m, 1)
			}
			checkIndexes(t, g, want)
		}
		kept := slices.Sorted(maps.Keys(want))
		kept = kept[:len(kept)/2]
		for _, uid := range kept {
			g.set(locations[want[uid].Namespace], want[uid], 2)
		}
		g.sweep(resource.GroupResource(), 2)
		maps.DeleteFunc(want, func(uid types.UID, _ client.Metadata) bool { return !slices.Contains(kept, uid) })
		checkIndexes(t, g, want)
	}
}

// TestManyOwners: an object may have a hundred thousand owners. If each owner were searched for in the whole list,
// this test would not end in time.
func TestManyOwners(t *testing.T) {
	number := effort.Rounds(100_000, 10_000)
	g := newGraph()
	g.listed()
	p := &location{resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, namespace: "a"}
	owners := make([]metav1.OwnerReference, number)
	for i := range owners {
		owners[i] = metav1.OwnerReference{UID: types.UID(fmt.Sprint(i)), BlockOwnerDeletion: new(true)}
	}
	for revision, list := range [][]metav1.OwnerReference{owners, owners, owners[1:], owners[:number-1]} {
		m := client.Metadata{
			Name: "x", Namespace: "a", Revision: int64(revision + 1), Lifecycle: registry.Lifecycle{UID: "x", Owners: list},
		}
		g.set(p, m, 1)
		checkIndexes(t, g, map[types.UID]client.Metadata{"x": m})
	}
}

// TestOldStatesAreIgnored: a list that began before a change returns a state that is older than the one from the
// watch.
func TestOldStatesAreIgnored(t *testing.T) {
	g := newGraph()
	p := &location{resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, namespace: "a"}
	owned := []metav1.OwnerReference{{UID: "owner"}}
	g.set(p, client.Metadata{Name: "x", Revision: 5, Lifecycle: registry.Lifecycle{UID: "x", Owners: owned}}, 1)
	g.set(p, client.Metadata{Name: "x", Revision: 4, Lifecycle: registry.Lifecycle{UID: "x"}}, 1)
	if o, ok := g.object("x"); !ok || o.revision != 5 || len(o.owners) != 1 {
		t.Errorf("the object is %+v, %t", o, ok)
	}
}

// TestMissingOwnersWaitForTheLists: while resources are still being listed, a missing owner may be in a later
// list.
func TestMissingOwnersWaitForTheLists(t *testing.T) {
	g := newGraph()
	p := &location{resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, namespace: "a"}
	owned := []metav1.OwnerReference{{UID: "owner"}}
	e := g.set(p, client.Metadata{Name: "x", Revision: 5, Lifecycle: registry.Lifecycle{UID: "x", Owners: owned}}, 1)
	if len(e.check) > 0 {
		t.Errorf("%v are checked during the lists", e.check)
	}
	if e := g.listed(); !slices.Equal(checked(e), []types.UID{"x"}) {
		t.Errorf("%v are checked after the lists", e.check)
	}
	e = g.set(p, client.Metadata{Name: "y", Revision: 6, Lifecycle: registry.Lifecycle{UID: "y", Owners: owned}}, 1)
	if !slices.Equal(checked(e), []types.UID{"y"}) {
		t.Errorf("%v are checked later", e.check)
	}
}

// checked returns the objects that have to be checked.
func checked(e effects) (uids []types.UID) {
	for _, pending := range e.check {
		uids = append(uids, pending.uid)
	}
	return uids
}

// TestLateDependents: an owner waits for its dependents. A dependent that refers to it only since then is checked
// when another dependent is gone. A dependent that referred to it before is checked at once, although the graph
// learns of it later.
func TestLateDependents(t *testing.T) {
	g := newGraph()
	g.listed()
	p := &location{resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, namespace: "a"}
	resource := p.resource.GroupResource()
	owned := []metav1.OwnerReference{{UID: "owner", Name: "owner", BlockOwnerDeletion: new(true)}}
	set := func(uid types.UID, revision int64, l registry.Lifecycle) effects {
		l.UID = uid
		return g.set(p, client.Metadata{Name: string(uid), Namespace: "a", Revision: revision, Lifecycle: l}, 1)
	}
	set("owner", 1, registry.Lifecycle{})
	set("early", 2, registry.Lifecycle{Owners: owned})
	set("owner", 4, registry.Lifecycle{Deleting: true, Finalizers: []string{metav1.FinalizerDeleteDependents}})
	if e := set("seen late", 3, registry.Lifecycle{Owners: owned}); !slices.Equal(checked(e), []types.UID{"seen late"}) {
		t.Errorf("%v are checked at once", e.check)
	}
	g.remove(resource, "seen late")
	if e := set("late", 5, registry.Lifecycle{Owners: owned}); len(e.check) > 0 {
		t.Errorf("%v are checked at once", e.check)
	}
	if e := g.remove(resource, "early"); !slices.Equal(checked(e), []types.UID{"late"}) {
		t.Errorf("%v are checked after another dependent is gone", e.check)
	}
	if e := g.remove(resource, "late"); !slices.Equal(checked(e), []types.UID{"owner"}) {
		t.Errorf("%v are checked after the last dependent is gone", e.check)
	}
}

// TestNameOfPlainOwner: the graph does not know the name of an owner that was plain. So it checks the first
// dependent, and each further dependent that uses a different name. If the first name was wrong, it also checks
// the dependents that use the same name.
func TestNameOfPlainOwner(t *testing.T) {
	g := newGraph()
	g.listed()
	resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	p := &location{resource: resource, apiVersion: "v1", kind: "ConfigMap"}
	dependent := func(uid types.UID, ownerName string) []types.UID {
		owners := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: ownerName, UID: uidOf("e")}}
		return checked(g.set(p, client.Metadata{Name: string(uid), Revision: 5, Lifecycle: registry.Lifecycle{
			UID: uid, Owners: owners,
		}}, 1))
	}
	g.set(p, client.Metadata{Name: "owner", Revision: 1, Lifecycle: registry.Lifecycle{UID: uidOf("e")}}, 1)
	if len(g.nodes) != 0 || len(g.plain.byUID) != 1 {
		t.Fatalf("%d nodes, %d plain objects", len(g.nodes), len(g.plain.byUID))
	}
	if got := dependent("a", "wrong"); !slices.Equal(got, []types.UID{"a"}) {
		t.Errorf("%v are checked with the first dependent", got)
	}
	if got := dependent("b", "wrong"); len(got) != 0 {
		t.Errorf("%v are checked with a dependent that gives the same name", got)
	}
	if got := dependent("c", "owner"); !slices.Equal(got, []types.UID{"c"}) {
		t.Errorf("%v are checked with a dependent that gives another name", got)
	}
	got := checked(g.setAbsent(identity{"v1", "ConfigMap", "", "wrong", uidOf("e")}))
	if slices.Sort(got); !slices.Equal(got, []types.UID{"a", "b", "c"}) {
		t.Errorf("%v are checked when the owner of that name is absent", got)
	}
	if got := dependent("d", "wrong"); !slices.Equal(got, []types.UID{"d"}) {
		t.Errorf("%v are checked with one more of the wrong name", got)
	}
	// The state of the owner tells its name.
	g.set(p, client.Metadata{Name: "owner", Revision: 9, Lifecycle: registry.Lifecycle{UID: uidOf("e")}}, 1)
	if got := dependent("f", "owner"); len(got) != 0 {
		t.Errorf("%v are checked although the name is known and right", got)
	}
}

func TestParseUID(t *testing.T) {
	const uid = "01234567-89ab-cdef-0123-456789abcdef"
	id, ok := parseUID(uid)
	if got := fmt.Sprintf("%x", id); !ok || got != strings.ReplaceAll(uid, "-", "") {
		t.Errorf("%s is %s, %t", uid, got, ok)
	}
	for _, other := range []types.UID{
		"", "a", "01234567-89AB-cdef-0123-456789abcdef", "01234567-89ab-cdef-0123-456789abcdeg", uid + "0", types.UID(uid[1:]),
		"01234567089ab-cdef-0123-456789abcdef", "0123456-789ab-cdef-0123-456789abcdef",
	} {
		if id, ok := parseUID(other); ok {
			t.Errorf("%q is %x", other, id)
		}
	}
}
