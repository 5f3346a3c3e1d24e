package garbagecollector

import (
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/client"
)

// place is what the objects of one resource in one namespace have in common. Objects share it.
type place struct {
	resource schema.GroupVersionResource
	// apiVersion and kind are those of the version in which discovery prefers the resource.
	apiVersion, kind string
	namespace        string
	remote           bool // see discovery.Resource
}

// owner is an owner reference, without what the collector does not need of it.
type owner struct {
	apiVersion, kind, name string
	uid                    types.UID
	blocks                 bool // blockOwnerDeletion
}

// node is an object in the graph, or a missing owner.
type node struct {
	uid types.UID
	// place is nil for a missing node: one that objects name as their owner and that was not seen. It exists to find
	// its dependents. The other fields are zero then, except for dependents.
	place *place
	name  string
	// revision is the resourceVersion of the state that the node shows.
	revision int64
	owners   []owner
	// dependents are the nodes with this one among their owners; nil if there are none.
	dependents map[*node]struct{}
	// blocking is the number of dependents that block the deletion of this object.
	blocking int
	// deleting means that the deletion has begun. orphans and foreground are whether the object has the finalizers
	// "orphan" and "foregroundDeletion".
	deleting, orphans, foreground bool
	// list is the number of the last list of the resource that had the object.
	list uint32
}

// missing returns whether the node stands for an owner that was not seen.
func (n *node) missing() bool { return n.place == nil }

// deletesDependents returns whether the object waits until its dependents are deleted.
func (n *node) deletesDependents() bool { return n.deleting && n.foreground }

// identity names an object by everything that an owner reference says.
type identity struct {
	apiVersion, kind, namespace, name string
	uid                               types.UID
}

func (i identity) String() string {
	return fmt.Sprintf("[%s/%s, namespace: %s, name: %s, uid: %s]", i.apiVersion, i.kind, i.namespace, i.name, i.uid)
}

func (n *node) identity() identity {
	return identity{n.place.apiVersion, n.place.kind, n.place.namespace, n.name, n.uid}
}

// refersTo returns whether an owner reference of an object in a namespace names n with the right kind, name and
// namespace. A namespaced owner must be in the namespace of its dependents.
func (o *owner) refersTo(n *node, namespace string) bool {
	return o.uid == n.uid && o.name == n.name && o.kind == n.place.kind && o.apiVersion == n.place.apiVersion &&
		(n.place.namespace == "" || n.place.namespace == namespace)
}

// invalidOwner is an owner reference to an object in another namespace.
type invalidOwner struct {
	dependent identity
	owner     owner
}

// effects are what has to be done after a change of the graph.
type effects struct {
	// check are objects that may have to be deleted, or whose deletion may be able to go on.
	check []types.UID
	// orphan are objects whose dependents have to lose their reference to them.
	orphan []types.UID
	// invalid are references that have to be reported.
	invalid []invalidOwner
}

// graph knows which object owns which, of all objects. It has no goroutine and does no input or output. Its methods may
// be called concurrently.
type graph struct {
	mu    sync.Mutex // guards what follows, and the nodes
	nodes map[types.UID]*node
	// listing is true until all resources were listed. Until then missing owners have no effect: they may be listed
	// yet.
	listing bool
	// absent are owners that are known not to exist.
	absent absentOwners
	// late are dependents by the owner that they got while it waited for the deletion of its dependents. As in
	// kube-controller-manager, they are checked when the owner loses another dependent.
	late map[types.UID][]types.UID
}

func newGraph() *graph {
	return &graph{
		nodes: map[types.UID]*node{}, listing: true, absent: absentOwners{}, late: map[types.UID][]types.UID{},
	}
}

// set takes the state of an object. list is the number of the list or watch that it comes from.
func (g *graph) set(p *place, m client.Metadata, list uint32) (e effects) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[m.UID]
	switch {
	case n == nil:
		n = &node{uid: m.UID}
		g.nodes[m.UID] = n
	case !n.missing() && n.revision > m.Revision && m.Revision != 0:
		n.list = list
		return e // an older state, from a list that began before
	}
	appears := n.missing()
	wasOrphaning, wasWaiting := n.deleting && n.orphans, n.deletesDependents()
	n.place, n.name, n.revision, n.list = p, m.Name, m.Revision, list
	n.deleting = m.Deleting
	n.orphans = slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents)
	n.foreground = slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents)
	if appears {
		g.appeared(n, &e)
	}
	g.setOwners(n, m.Owners, &e)
	switch {
	case n.deleting && n.orphans && !wasOrphaning:
		e.orphan = append(e.orphan, n.uid)
	case n.deletesDependents() && !wasWaiting:
		for dependent := range n.dependents {
			e.check = append(e.check, dependent.uid)
		}
		e.check = append(e.check, n.uid)
	}
	return e
}

// appeared checks the references of the dependents that were seen before their owner n.
func (g *graph) appeared(n *node, e *effects) {
	for dependent := range n.dependents {
		for i := range dependent.owners {
			g.checkReference(dependent, &dependent.owners[i], n, e)
		}
	}
}

// checkReference has a dependent checked whose reference to n does not name n as it is. One to another namespace is
// also reported.
func (g *graph) checkReference(dependent *node, o *owner, n *node, e *effects) {
	if o.uid != n.uid || o.refersTo(n, dependent.place.namespace) {
		return
	}
	if n.place.namespace != "" && n.place.namespace != dependent.place.namespace {
		e.invalid = append(e.invalid, invalidOwner{dependent.identity(), *o})
	}
	e.check = append(e.check, dependent.uid)
}

// setOwners replaces the owners of a node.
func (g *graph) setOwners(n *node, references []metav1.OwnerReference, e *effects) {
	if sameOwners(n.owners, references) {
		return
	}
	before, wasOwnedBy := n.owners, indexOwners(n.owners)
	n.owners = nil
	for i := range references {
		r := &references[i]
		n.owners = append(n.owners, owner{
			apiVersion: r.APIVersion, kind: r.Kind, name: r.Name, uid: r.UID, blocks: blocksOwner(r),
		})
	}
	ownedBy := indexOwners(n.owners)
	for i := range n.owners {
		o := &n.owners[i]
		if !wasOwnedBy.has(o.uid) {
			g.addOwner(n, o, ownedBy.blocks(o.uid), e)
		} else if to := g.nodes[o.uid]; to != nil {
			shareStrings(o, to)
		}
	}
	for i := range before {
		if uid := before[i].uid; wasOwnedBy.first(uid) == i {
			g.ownerChanged(n, uid, wasOwnedBy.blocks(uid), ownedBy, e)
		}
	}
}

func blocksOwner(r *metav1.OwnerReference) bool {
	return r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
}

// sameOwners returns whether references are the owners that a node has, as with most changes of an object.
func sameOwners(owners []owner, references []metav1.OwnerReference) bool {
	if len(owners) != len(references) {
		return false
	}
	for i := range owners {
		o, r := &owners[i], &references[i]
		if o.uid != r.UID || o.name != r.Name || o.kind != r.Kind || o.apiVersion != r.APIVersion || o.blocks != blocksOwner(r) {
			return false
		}
	}
	return true
}

// ownerIndex finds owners in a list by their UIDs. An object may have thousands; few have more than one or two.
type ownerIndex struct {
	list []owner
	byID map[types.UID]indexedOwner // nil for a short list
}

// indexedOwner says at which place a UID stands first, and whether the deletion of the owner is blocked.
type indexedOwner struct {
	first  int
	blocks bool
}

// shortList is the length of a list that is searched faster without a map.
const shortList = 8

func indexOwners(list []owner) ownerIndex {
	x := ownerIndex{list: list}
	if len(list) <= shortList {
		return x
	}
	x.byID = make(map[types.UID]indexedOwner, len(list))
	for i := range list {
		found, ok := x.byID[list[i].uid]
		if !ok {
			found.first = i
		}
		found.blocks = found.blocks || list[i].blocks
		x.byID[list[i].uid] = found
	}
	return x
}

// first returns the first place of an owner, -1 if it is not among the owners.
func (x ownerIndex) first(uid types.UID) int {
	if x.byID == nil {
		return slices.IndexFunc(x.list, func(o owner) bool { return o.uid == uid })
	}
	if found, ok := x.byID[uid]; ok {
		return found.first
	}
	return -1
}

// has returns whether an owner is among the owners.
func (x ownerIndex) has(uid types.UID) bool { return x.first(uid) >= 0 }

// blocks returns whether an object with these owners blocks the deletion of one of them.
func (x ownerIndex) blocks(uid types.UID) bool {
	if x.byID == nil {
		return slices.ContainsFunc(x.list, func(o owner) bool { return o.uid == uid && o.blocks })
	}
	return x.byID[uid].blocks
}

// shareStrings makes a reference use the strings of its owner, so that they are in memory once.
func shareStrings(o *owner, to *node) {
	o.uid = to.uid
	if o.name == to.name {
		o.name = to.name
	}
}

// addOwner adds a node to the dependents of an owner that it did not have before. If that is missing, the dependent
// has to be checked: if the owner does not exist, the dependent has to go. If the owner waits for the deletion of its
// dependents, the dependent has to go as well (see graph.late).
//
// blocks says whether n blocks its deletion.
func (g *graph) addOwner(n *node, o *owner, blocks bool, e *effects) {
	to := g.nodes[o.uid]
	if to == nil {
		to = &node{uid: o.uid}
		g.nodes[o.uid] = to
	}
	shareStrings(o, to)
	if to.dependents == nil {
		to.dependents = map[*node]struct{}{}
	}
	if _, known := to.dependents[n]; !known && blocks {
		to.blocking++
	}
	to.dependents[n] = struct{}{}
	switch {
	case !to.missing() && to.deletesDependents() && g.listing:
		e.check = append(e.check, n.uid)
	case !to.missing() && to.deletesDependents():
		g.late[to.uid] = append(g.late[to.uid], n.uid)
	case !to.missing():
		g.checkReference(n, o, to, e)
	case !g.listing:
		e.check = append(e.check, n.uid)
	}
}

// ownerChanged takes note that the owners of n have changed to owners, one of which was that of uid. blocked is whether n
// blocked its deletion. An owner that waited for n, and for no others now, has to be checked.
func (g *graph) ownerChanged(n *node, uid types.UID, blocked bool, owners ownerIndex, e *effects) {
	to := g.nodes[uid]
	if to == nil {
		return
	}
	switch now := owners.blocks(uid); {
	case blocked && !now:
		to.blocking--
		if !to.missing() && to.deletesDependents() && to.blocking == 0 {
			e.check = append(e.check, uid)
		}
	case !blocked && now:
		to.blocking++
	}
	if !owners.has(uid) {
		e.check = append(e.check, g.late[uid]...)
		delete(g.late, uid)
		g.removeDependent(to, n)
	}
}

// removeDependent removes a node from the dependents of an owner.
func (g *graph) removeDependent(o, n *node) {
	delete(o.dependents, n)
	if len(o.dependents) == 0 {
		o.dependents = nil
		if o.missing() {
			delete(g.nodes, o.uid)
		}
	}
}

// remove takes the deletion of an object.
func (g *graph) remove(uid types.UID) (e effects) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[uid]
	if n == nil || n.missing() {
		return e
	}
	g.removeNode(n, &e)
	return e
}

// removeNode removes a node that was seen. It stays as a missing one while it has dependents.
func (g *graph) removeNode(n *node, e *effects) {
	delete(g.late, n.uid)
	if len(n.dependents) > 0 {
		g.absent.add(n.identity())
	}
	for dependent := range n.dependents {
		e.check = append(e.check, dependent.uid)
	}
	g.setOwners(n, nil, e)
	n.place, n.name, n.revision = nil, "", 0
	n.deleting, n.orphans, n.foreground = false, false, false
	if len(n.dependents) == 0 {
		delete(g.nodes, n.uid)
	}
}

// sweep removes the objects of a resource that its list of that number did not have.
func (g *graph) sweep(resource schema.GroupResource, list uint32) (e effects) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var gone []*node
	for _, n := range g.nodes {
		if !n.missing() && n.list != list && n.place.resource.GroupResource() == resource {
			gone = append(gone, n)
		}
	}
	for _, n := range gone {
		g.removeNode(n, &e)
	}
	return e
}

// listed ends the listing: from now on missing owners have their dependents checked, those that there are now at once.
func (g *graph) listed() (e effects) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listing = false
	for _, n := range g.nodes {
		if !n.missing() {
			continue
		}
		for dependent := range n.dependents {
			e.check = append(e.check, dependent.uid)
		}
	}
	return e
}

// object is a copy of what the graph knows of an object.
type object struct {
	*place
	uid      types.UID
	name     string
	revision int64
	owners   []owner
	// See node.
	deleting, orphans, foreground bool
	// dependents is the number of dependents, and blocking the number of those that block the deletion of the object.
	dependents, blocking int
}

// object returns an object. It returns false for one that was not seen.
func (g *graph) object(uid types.UID) (object, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[uid]
	if n == nil || n.missing() {
		return object{}, false
	}
	return object{
		place: n.place, uid: n.uid, name: n.name, revision: n.revision, owners: n.owners,
		deleting: n.deleting, orphans: n.orphans, foreground: n.foreground,
		dependents: len(n.dependents), blocking: n.blocking,
	}, true
}

// hasWaitingDependent returns whether a dependent of an object waits for the deletion of its own dependents.
func (g *graph) hasWaitingDependent(uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.nodes[uid]; n != nil {
		for dependent := range n.dependents {
			if dependent.deletesDependents() {
				return true
			}
		}
	}
	return false
}

// dependents returns the objects that name an object as their owner.
func (g *graph) dependents(uid types.UID) []types.UID {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[uid]
	if n == nil {
		return nil
	}
	out := make([]types.UID, 0, len(n.dependents))
	for dependent := range n.dependents {
		out = append(out, dependent.uid)
	}
	return out
}

// isAbsent returns whether an owner is known not to exist.
func (g *graph) isAbsent(i identity) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.absent[i]
}

// setAbsent notes that an owner does not exist.
func (g *graph) setAbsent(i identity) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.absent.add(i)
}

// absentOwners are owners that do not exist. As a UID is never used again, none of them comes back.
type absentOwners map[identity]bool

// maxAbsent bounds the number of absentOwners.
const maxAbsent = 1024

func (a absentOwners) add(i identity) {
	if len(a) >= maxAbsent {
		for other := range a { // any one: it is looked up again if it is needed
			delete(a, other)
			break
		}
	}
	a[i] = true
}
