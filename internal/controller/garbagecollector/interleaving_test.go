package garbagecollector

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
)

// solid reports whether an owner exists and does not wait for the deletion of its dependents.
func (m *model) solid(uid types.UID) bool {
	o := m.objects[uid]
	return o != nil && !m.isWaiting(o)
}

func (m *model) isWaiting(o *metav1.PartialObjectMetadata) bool {
	return o.DeletionTimestamp != nil && slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents)
}

// mustStay returns why the collector must not delete an object, or "" if it may delete it.
func (m *model) mustStay(o *metav1.PartialObjectMetadata) string {
	if len(o.OwnerReferences) == 0 {
		return "it has no owners"
	}
	for _, r := range o.OwnerReferences {
		owner := m.objects[r.UID]
		switch at := m.orphaned[r.UID]; {
		case m.nested && m.waiting[r.UID] < at:
			// The check may have read the owner while it waited, before the owner was deleted once more with the
			// policy Orphan.
		case at > 0 && m.referred[[2]types.UID{o.UID, r.UID}] < at:
			return fmt.Sprintf("its owner %s was deleted with the policy Orphan", r.UID)
		case m.solid(r.UID) && owner.DeletionTimestamp == nil:
			return fmt.Sprintf("its owner %s exists", r.UID)
		}
	}
	return ""
}

// blockers returns the objects that block the deletion of an object.
func (m *model) blockers(uid types.UID) (blockers []types.UID) {
	for _, o := range m.objects {
		if slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool {
			return r.UID == uid && blocksOwner(&r)
		}) {
			blockers = append(blockers, o.UID)
		}
	}
	return blockers
}

// madeLate reports whether a reference to an owner that waits was made after its deletion began. Such a dependent
// is not checked until the owner loses another dependent, as with kube-controller-manager. So it may stay while
// another dependent blocks the owner.
func (m *model) madeLate(o *metav1.PartialObjectMetadata, r *metav1.OwnerReference) bool {
	owner := m.objects[r.UID]
	if owner == nil || !m.isWaiting(owner) || m.referred[[2]types.UID{o.UID, r.UID}] < m.waiting[r.UID] {
		return false
	}
	return slices.ContainsFunc(m.blockers(r.UID), func(uid types.UID) bool { return uid != o.UID })
}

// judge returns the faults in the final state, when no event is left. It does not use the graph: it only looks at
// the objects that are left.
func (m *model) judge() (faults []string) {
	for _, o := range m.objects {
		if m.isWaiting(o) && len(m.blockers(o.UID)) == 0 {
			faults = append(faults, fmt.Sprintf("%s waits although nothing blocks it", o.UID))
		}
		if slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents) {
			faults = append(faults, fmt.Sprintf("%s is not orphaned", o.UID))
		}
		if o.DeletionTimestamp != nil {
			continue
		}
		solid := slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return m.solid(r.UID) })
		for _, r := range o.OwnerReferences {
			switch {
			case m.solid(r.UID), m.madeLate(o, &r):
			case solid:
				faults = append(faults, fmt.Sprintf("%s has a reference to %s", o.UID, r.UID))
			case !slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return m.madeLate(o, &r) }):
				faults = append(faults, fmt.Sprintf("%s stays although it has no owner", o.UID))
			}
		}
	}
	return faults
}

// These functions are the actions of users.

// uidOf returns the UID of an object of the model. It has the form of the UIDs that the server makes.
func uidOf(name string) types.UID {
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012s", name))
}

// create creates an object with owners and finalizers. A part "b" is the owner b, "b!" an owner b whose deletion
// the object blocks, and "+x" the finalizer x.
func create(name string, parts ...string) func(*model) {
	uid := uidOf(name)
	return func(m *model) {
		o := &metav1.PartialObjectMetadata{}
		o.UID, o.Name, o.Namespace = uid, string(uid), "ns"
		for _, part := range parts {
			if finalizer, ok := strings.CutPrefix(part, "+"); ok {
				o.Finalizers = append(o.Finalizers, finalizer)
			}
		}
		o.OwnerReferences = references(parts)
		m.objects[uid] = o
		m.changed(o)
	}
}

func references(parts []string) (out []metav1.OwnerReference) {
	for _, part := range parts {
		if strings.HasPrefix(part, "+") {
			continue
		}
		name, blocks := strings.CutSuffix(part, "!")
		out = append(out, metav1.OwnerReference{
			APIVersion: "model/v1", Kind: locationOf(uidOf(name)).kind, Name: string(uidOf(name)), UID: uidOf(name),
			BlockOwnerDeletion: &blocks,
		})
	}
	return out
}

// own replaces the owners of an object.
func own(name string, owners ...string) func(*model) {
	return change(name, func(o *metav1.PartialObjectMetadata) { o.OwnerReferences = references(owners) })
}

// free removes all finalizers of an object except those of the collector.
func free(name string) func(*model) {
	return change(name, func(o *metav1.PartialObjectMetadata) {
		o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return len(f) == 1 })
	})
}

func change(name string, do func(*metav1.PartialObjectMetadata)) func(*model) {
	uid := uidOf(name)
	return func(m *model) {
		if m.objects[uid] == nil {
			return
		}
		o := m.objects[uid].DeepCopy()
		do(o)
		m.objects[uid] = o
		m.changed(o)
	}
}

func remove(name string, policy metav1.DeletionPropagation) func(*model) {
	uid := uidOf(name)
	return func(m *model) {
		if m.objects[uid] != nil {
			m.delete(uid, policy)
		}
	}
}

const (
	foreground = metav1.DeletePropagationForeground
	background = metav1.DeletePropagationBackground
	orphaning  = metav1.DeletePropagationOrphan
)

var interleavings = map[string][]func(*model){
	"foreground":              {create("a"), create("b", "a!"), create("c", "a!"), remove("a", foreground)},
	"a dependent stays":       {create("a"), create("b", "a!", "+x"), create("c", "a!"), remove("a", foreground)},
	"a dependent is free":     {create("a"), create("b", "a!", "+x"), create("c", "a"), remove("a", foreground)},
	"a finalizer goes":        {create("a"), create("b", "a!", "+x"), remove("a", foreground), free("b")},
	"made late":               {create("a"), create("b", "a!"), remove("a", foreground), create("c", "a!")},
	"made late, blocked":      {create("a"), create("b", "a!", "+x"), remove("a", foreground), create("c", "a!")},
	"made late, then freed":   {create("a"), create("b", "a!", "+x"), remove("a", foreground), create("c", "a!"), free("b")},
	"made late, blocks later": {create("a", "+x"), create("b", "a!"), remove("a", foreground), own("b", "a"), own("b", "a!")},
	"an owner is added":       {create("a"), create("b"), remove("a", foreground), own("b", "a!")},
	"an owner is removed":     {create("a"), create("b", "a!"), remove("a", foreground), own("b")},
	"chain":                   {create("a"), create("b", "a!"), create("c", "b!"), remove("a", foreground)},
	"two owners":              {create("a"), create("b"), create("c", "a!", "b!"), remove("a", foreground)},
	"both owners go":          {create("a"), create("b"), create("c", "a!", "b!"), remove("a", foreground), remove("b", background)},
	"circle":                  {create("a"), create("b", "a!"), own("a", "b!"), remove("a", foreground)},
	"circle, blocked": {
		create("a"), create("b", "a!"), create("c", "b!"), create("d", "c!", "+x"), create("e", "a!", "+x"),
		remove("c", foreground), remove("a", foreground),
	},
	"orphans":          {create("a"), create("b", "a!"), create("c", "a"), remove("a", orphaning)},
	"background":       {create("a"), create("b", "a!"), create("c", "b"), remove("a", background)},
	"owners by halves": {create("a"), create("b"), create("c", "a", "b"), remove("a", background), remove("b", orphaning)},
}

// TestEveryInterleaving: the final state is right in whatever order the graph receives the changes of different
// resources and objects are checked. The test tries up to most orders systematically, and then random orders, in
// which other events also happen in the middle of a check.
func TestEveryInterleaving(t *testing.T) {
	most, random := 5_000, 1_000
	if !effort.Full() {
		most, random = 1_000, 200
	}
	for name, todo := range interleavings {
		t.Run(name, func(t *testing.T) {
			ch, runs := &choices{}, 0
			for more := true; more && runs < most; more = ch.next() {
				tryOrder(t, ch, todo, false)
				runs++
			}
			for seed := range random {
				tryOrder(t, &choices{random: rand.New(rand.NewPCG(uint64(seed), 1))}, todo, true)
			}
			t.Log(runs, "orders")
		})
	}
}

func tryOrder(t *testing.T, ch *choices, todo []func(*model), nested bool) {
	t.Helper()
	m := newModel(ch, todo)
	m.nested = nested
	if faults := m.run(); len(faults) > 0 {
		t.Fatalf("%s\n\n%s", strings.Join(faults, "\n"), strings.Join(m.log, "\n"))
	}
}

// TestRandomGraphs does the same as TestEveryInterleaving, with random objects and random changes of them.
func TestRandomGraphs(t *testing.T) {
	graphs := 5_000
	if !effort.Full() {
		graphs = 1_000
	}
	for seed := range graphs {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		tryOrder(t, &choices{random: r}, randomGraph(r), seed%2 == 1)
	}
}

func randomGraph(r *rand.Rand) (todo []func(*model)) {
	names := []string{"a", "b", "c", "d", "e"}[:2+r.IntN(4)]
	owners := func(self string, among []string) (out []string) {
		for _, name := range among {
			if name != self && r.IntN(3) == 0 {
				out = append(out, name+[]string{"", "!"}[r.IntN(2)])
			}
		}
		return out
	}
	late := r.IntN(len(names))
	for i, name := range names {
		parts := owners(name, names[:i]) // nobody knows the UID of an object that does not exist yet
		if r.IntN(4) == 0 {
			parts = append(parts, "+x")
		}
		todo = append(todo, create(name, parts...))
		if i == late {
			todo = append(todo, remove(names[r.IntN(i+1)], foreground))
		}
	}
	for range r.IntN(4) {
		name := names[r.IntN(len(names))]
		policy := []metav1.DeletionPropagation{foreground, background, orphaning}[r.IntN(3)]
		todo = append(todo, []func(*model){remove(name, policy), own(name, owners(name, names)...), free(name)}[r.IntN(3)])
	}
	return todo
}
