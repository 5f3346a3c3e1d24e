package garbagecollector

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/client"
)

// location is a resource and, unless it is cluster-scoped, a namespace. All objects with the same location share one.
type location struct {
	resource schema.GroupVersionResource
	// apiVersion and kind identify the version of the resource that discovery prefers.
	apiVersion, kind string
	namespace        string
	remote           bool // see discovery.Resource
}

// sameResource reports whether two locations have the same resource, perhaps in different versions.
func (l *location) sameResource(other *location) bool {
	return l.resource.GroupResource() == other.resource.GroupResource()
}

// owner is an owner reference with the fields that the collector needs.
type owner struct {
	apiVersion, kind, name string
	uid                    types.UID
	blocks                 bool // blockOwnerDeletion
}

// node is an object in the graph, or a missing owner.
type node struct {
	uid types.UID
	// location is nil for a missing node: an owner that was named by objects but not seen itself. Such a node
	// exists so that its dependents can be found. Its other fields, except for dependents, are zero.
	//
	// Only states of the same resource change the node. If an object of an extension API server has the same UID
	// as an object of another resource, the node belongs to the object that was seen first; but an object of this
	// server replaces one of an extension API server.
	location *location
	// name is the name of the object. If the object was plain before, it is the name in the reference of its first
	// dependent. A check of that dependent finds out whether the name is right (see graph.setAbsent).
	name string
	// revision is the resourceVersion of the state in the node. It is 0 if the object was plain in that state.
	revision int64
	owners   []owner
	// dependents are the nodes whose owners include this one; nil if there are none.
	dependents map[*node]struct{}
	// blocking is the number of dependents that block the deletion of this object.
	blocking int
	// deleting means that the deletion has begun. orphans and foreground are whether the object has the finalizers
	// "orphan" and "foregroundDeletion".
	deleting, orphans, foreground bool
	// list is the number of the last list of the resource that had the object.
	list uint32
}

// missing reports whether the node stands for an owner that was not seen.
func (n *node) missing() bool { return n.location == nil }

// deletesDependents reports whether the object waits until its dependents are deleted.
func (n *node) deletesDependents() bool { return n.deleting && n.foreground }

// identity contains the fields of an owner reference that identify an object, and the namespace.
type identity struct {
	apiVersion, kind, namespace, name string
	uid                               types.UID
}

func (i identity) String() string {
	return fmt.Sprintf("[%s/%s, namespace: %s, name: %s, uid: %s]", i.apiVersion, i.kind, i.namespace, i.name, i.uid)
}

func (n *node) identity() identity {
	return identity{n.location.apiVersion, n.location.kind, n.location.namespace, n.name, n.uid}
}

// refersTo reports whether an owner reference of an object in a namespace names n with the right kind, name and
// namespace. A namespaced owner must be in the namespace of its dependents.
func (o *owner) refersTo(n *node, namespace string) bool {
	return o.uid == n.uid && o.name == n.name && o.kind == n.location.kind && o.apiVersion == n.location.apiVersion &&
		(n.location.namespace == "" || n.location.namespace == namespace)
}

// mayName reports whether an owner reference is to the kind of n, in any version of its group.
func (o *owner) mayName(n *node) bool {
	group, _, ok := strings.Cut(o.apiVersion, "/")
	if !ok {
		group = ""
	}
	return o.uid == n.uid && o.kind == n.location.kind && group == n.location.resource.Group
}

// invalidOwner is an owner reference to an object in another namespace.
type invalidOwner struct {
	dependent identity
	owner     owner
}

// effects are the actions that a change of the graph requires.
type effects struct {
	// check are objects that may have to be deleted, or whose deletion may be able to go on.
	check []pendingCheck
	// orphan are objects whose dependents have to lose their reference to them.
	orphan []types.UID
	// invalid are references that have to be reported.
	invalid []invalidOwner
}

// pendingCheck is an object that has to be checked, after a delay.
type pendingCheck struct {
	uid   types.UID
	delay time.Duration
}

const (
	// delayOfOwner is multiplied by the number of owners to delay the check of an object with many owners, up to
	// maxDelayOfOwners. A check reads all owners and may write the object, and each change of an owner requires a
	// check. After a delay, one check serves many changes.
	delayOfOwner, maxDelayOfOwners = 4 * time.Millisecond, 10 * time.Second
)

// add requests a check of a node.
func (e *effects) add(n *node) {
	pending := pendingCheck{uid: n.uid}
	if len(n.owners) > shortList {
		pending.delay = min(time.Duration(len(n.owners))*delayOfOwner, maxDelayOfOwners)
	}
	e.check = append(e.check, pending)
}

// graph contains the owner references between all objects. It has no goroutine and does no input or output. Its
// methods may be called concurrently.
type graph struct {
	mu    sync.Mutex // guards what follows, and the nodes
	nodes map[types.UID]*node
	plain plainObjects // the objects that were seen and have no node
	// listing is true until all resources were listed. Until then, missing owners have no effect, because a later
	// list may contain them.
	listing bool
	// absent are owners that are known not to exist.
	absent absentOwners
	// waiting are the objects that wait until their dependents are deleted (see deletesDependents), by their UIDs.
	waiting map[types.UID]*waitingOwner
}

// waitingOwner is the state of an object that waits for the deletion of its dependents.
//
// The events of different resources arrive in any order. So there are two kinds of dependents that are new in the
// graph:
//
//   - *seen late*: the dependent already referred to its owner when the deletion of the owner began. It is checked
//     at once, as are the dependents that the graph knew before.
//   - *made late*: the dependent got its reference to the owner after the deletion had begun. It is checked
//     together with the owner, or when the owner loses another dependent, as in kube-controller-manager.
//
// The revisions tell which kind a dependent is.
type waitingOwner struct {
	// since is the revision of the first known state in which the object waits. The deletion began at it or before it.
	since int64
	// madeLate are dependents that were made late and block the deletion of the owner, until they are checked.
	madeLate []types.UID
}

func newGraph() *graph {
	return &graph{
		nodes: map[types.UID]*node{}, plain: newPlainObjects(), listing: true, absent: absentOwners{},
		waiting: map[types.UID]*waitingOwner{},
	}
}

// set updates the graph with the state of an object. list is the number of the list or watch that returned it.
func (g *graph) set(p *location, m client.Metadata, list uint32) (e effects) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.setPlain(p, &m, list) {
		return e
	}
	n := g.nodeFor(p, m.UID, &e)
	switch {
	case n == nil:
		return e
	case !n.missing() && n.revision > m.Revision && m.Revision != 0:
		n.list = list
		return e // an older state, from a list that began before
	}
	appears := n.missing()
	wasOrphaning, wasWaiting := n.deleting && n.orphans, n.deletesDependents()
	if n.name != m.Name {
		n.name = strings.Clone(m.Name)
	}
	n.location, n.revision, n.list = p, m.Revision, list
	n.deleting = m.Deleting
	n.orphans = slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents)
	n.foreground = slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents)
	switch {
	case !n.deletesDependents():
		delete(g.waiting, n.uid)
	case !wasWaiting:
		g.waiting[n.uid] = &waitingOwner{since: n.revision}
	}
	if appears {
		g.appeared(n, &e)
	}
	g.setOwners(n, m.Owners, &e)
	switch {
	case n.deleting && n.orphans && !wasOrphaning:
		e.orphan = append(e.orphan, n.uid)
	case n.deletesDependents() && !wasWaiting:
		for dependent := range n.dependents {
			e.add(dependent)
		}
		e.add(n)
	}
	g.releaseNode(n)
	return e
}

// setPlain adds an object that has no node and needs none to the plain objects. It returns false, and does
// nothing, for other objects.
func (g *graph) setPlain(p *location, m *client.Metadata, list uint32) bool {
	if g.nodes[m.UID] != nil || !isPlain(p, m) {
		return false
	}
	if before, _ := g.plain.find(m.UID); before != nil && !before.sameResource(p) {
		return true // the UID belongs to another object, see node.location
	}
	return g.plain.add(p, m.UID, list)
}

// releaseNode removes the node of an object that has become plain.
func (g *graph) releaseNode(n *node) {
	if n.missing() || n.location.remote || n.deleting || len(n.owners) > 0 || len(n.dependents) > 0 {
		return
	}
	if g.plain.add(n.location, n.uid, n.list) {
		delete(g.nodes, n.uid)
	}
}

// ownerNode returns the node of an owner that n names. The node may be a missing one. If the owner is a plain
// object, it gets a node, and n is checked, because the name of the owner is not known.
func (g *graph) ownerNode(n *node, o *owner, e *effects) *node {
	to := g.nodes[o.uid]
	if to != nil {
		return to
	}
	to = &node{uid: o.uid}
	if p, list := g.plain.find(o.uid); p != nil {
		g.plain.remove(o.uid)
		to.location, to.name, to.list = p, o.name, list
		e.add(n)
	}
	g.nodes[o.uid] = to
	return to
}

// nodeFor returns the node of an object at p. It returns nil if the UID belongs to another object (see node.location).
func (g *graph) nodeFor(p *location, uid types.UID, e *effects) *node {
	n := g.nodes[uid]
	if n == nil {
		if before, _ := g.plain.find(uid); before != nil && !before.sameResource(p) {
			return nil
		}
		g.plain.remove(uid)
	}
	if n != nil && !n.missing() && !n.location.sameResource(p) {
		if p.remote || !n.location.remote {
			return nil
		}
		g.removeNode(n, e)
		n = g.nodes[uid]
	}
	if n == nil {
		n = &node{uid: types.UID(strings.Clone(string(uid)))}
		g.nodes[n.uid] = n
	}
	return n
}

// appeared checks the references of the dependents that were seen before their owner n.
func (g *graph) appeared(n *node, e *effects) {
	for dependent := range n.dependents {
		for i := range dependent.owners {
			g.checkReference(dependent, &dependent.owners[i], n, e)
		}
	}
}

// checkReference adds a check of a dependent whose reference to n has a wrong name or kind. A reference to another
// namespace is also reported.
func (g *graph) checkReference(dependent *node, o *owner, n *node, e *effects) {
	if o.uid != n.uid || o.refersTo(n, dependent.location.namespace) {
		return
	}
	if n.location.namespace != "" && n.location.namespace != dependent.location.namespace {
		e.invalid = append(e.invalid, invalidOwner{dependent.identity(), *o})
	}
	e.add(dependent)
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

// sameOwners reports whether references are the owners that a node has already. This is so for most changes of an
// object.
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

// ownerIndex finds owners in a list by their UIDs. An object may have thousands of owners; most objects have one
// or two at most.
type ownerIndex struct {
	list []owner
	byID map[types.UID]indexedOwner // nil for a short list
}

// indexedOwner contains the first index of a UID, and whether the deletion of the owner is blocked.
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

// first returns the first index of an owner, -1 if it is not in the list.
func (i ownerIndex) first(uid types.UID) int {
	if i.byID == nil {
		return slices.IndexFunc(i.list, func(o owner) bool { return o.uid == uid })
	}
	if found, ok := i.byID[uid]; ok {
		return found.first
	}
	return -1
}

// has reports whether an owner is among the owners.
func (i ownerIndex) has(uid types.UID) bool { return i.first(uid) >= 0 }

// blocks reports whether an object with these owners blocks the deletion of one of them.
func (i ownerIndex) blocks(uid types.UID) bool {
	if i.byID == nil {
		return slices.ContainsFunc(i.list, func(o owner) bool { return o.uid == uid && o.blocks })
	}
	return i.byID[uid].blocks
}

// shareStrings makes a reference use the strings of the owner's node, so that each string is in memory only once.
func shareStrings(o *owner, to *node) {
	o.uid = to.uid
	if o.name == to.name {
		o.name = to.name
	}
}

// addOwner adds a node to the dependents of an owner that is new for this node. If the owner is missing, the
// dependent has to be checked, because it must be deleted if the owner does not exist. If the owner waits for the
// deletion of its dependents, the dependent must be deleted as well (see waitingOwner).
//
// blocks reports whether n blocks the deletion of the owner.
func (g *graph) addOwner(n *node, o *owner, blocks bool, e *effects) {
	to := g.ownerNode(n, o, e)
	shareStrings(o, to)
	if to.dependents == nil {
		to.dependents = map[*node]struct{}{}
	}
	if _, known := to.dependents[n]; !known && blocks {
		to.blocking++
	}
	to.dependents[n] = struct{}{}
	switch {
	case !to.missing() && to.deletesDependents():
		g.addToWaiting(n, to, blocks, e)
	case !to.missing():
		g.checkReference(n, o, to, e)
	case !g.listing:
		e.add(n)
	}
}

// addToWaiting handles a new dependent of an owner that waits for the deletion of its dependents.
func (g *graph) addToWaiting(n, owner *node, blocks bool, e *effects) {
	waiting := g.waiting[owner.uid]
	// The revisions of an extension API server cannot be compared with others.
	comparable := !n.location.remote && !owner.location.remote
	switch {
	case g.listing || comparable && n.revision < waiting.since:
		e.add(n) // seen late
	case blocks:
		waiting.madeLate = append(waiting.madeLate, n.uid)
	}
}

// checkMadeLate adds a check of each dependent that an owner got while it waited.
func (g *graph) checkMadeLate(uid types.UID, e *effects) {
	if waiting := g.waiting[uid]; waiting != nil {
		for _, late := range waiting.madeLate {
			if n := g.nodes[late]; n != nil {
				e.add(n)
			}
		}
		waiting.madeLate = nil
	}
}

// blocked reports whether dependents block the deletion of an object that waits for them. If so, the dependents that
// were made late are checked.
func (g *graph) blocked(uid types.UID) (blocked bool, e effects) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[uid]
	if n == nil || n.blocking == 0 {
		return false, e
	}
	g.checkMadeLate(uid, &e)
	return true, e
}

// ownerChanged updates an owner that n had before, with the UID uid, when the owners of n change to owners.
// blocked reports whether n blocked the deletion of that owner. If the owner waited for n and now waits for no
// dependent, it has to be checked.
func (g *graph) ownerChanged(n *node, uid types.UID, blocked bool, owners ownerIndex, e *effects) {
	to := g.nodes[uid]
	if to == nil {
		return
	}
	switch now := owners.blocks(uid); {
	case blocked && !now:
		to.blocking--
		g.checkMadeLate(uid, e)
		if !to.missing() && to.deletesDependents() && to.blocking == 0 {
			e.add(to)
		}
	case !blocked && now:
		to.blocking++
		if waiting := g.waiting[uid]; waiting != nil {
			waiting.madeLate = append(waiting.madeLate, n.uid)
		}
	}
	if !owners.has(uid) {
		g.checkMadeLate(uid, e)
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
		g.releaseNode(o)
	}
}

// remove updates the graph after the deletion of an object of a resource.
func (g *graph) remove(resource schema.GroupResource, uid types.UID) (e effects) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p, _ := g.plain.find(uid); p != nil && p.resource.GroupResource() == resource {
		g.plain.remove(uid)
	}
	n := g.nodes[uid]
	if n == nil || n.missing() || n.location.resource.GroupResource() != resource {
		return e
	}
	g.removeNode(n, &e)
	return e
}

// removeNode removes a node that was seen. It stays as a missing node while it has dependents. If an extension API
// server reports the deletion, this does not prove it: the check of each dependent reads the owner.
func (g *graph) removeNode(n *node, e *effects) {
	delete(g.waiting, n.uid)
	if len(n.dependents) > 0 && !n.location.remote {
		g.absent.add(n.identity())
	}
	for dependent := range n.dependents {
		e.add(dependent)
	}
	n.location, n.name, n.revision = nil, "", 0
	n.deleting, n.orphans, n.foreground = false, false, false
	g.setOwners(n, nil, e)
	if len(n.dependents) == 0 {
		delete(g.nodes, n.uid)
	}
}

// sweep removes the objects of a resource that were not in the list with this number.
func (g *graph) sweep(resource schema.GroupResource, list uint32) (e effects) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.plain.sweep(resource, list)
	var gone []*node
	for _, n := range g.nodes {
		if !n.missing() && n.list != list && n.location.resource.GroupResource() == resource {
			gone = append(gone, n)
		}
	}
	for _, n := range gone {
		g.removeNode(n, &e)
	}
	return e
}

// listed ends the listing: it requests a check of the existing dependents of missing owners, and later ones are
// checked when they are added.
func (g *graph) listed() (e effects) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listing = false
	for _, n := range g.nodes {
		if !n.missing() {
			continue
		}
		for dependent := range n.dependents {
			e.add(dependent)
		}
	}
	return e
}

// object is a copy of the state of an object in the graph.
type object struct {
	*location
	uid      types.UID
	name     string
	revision int64
	owners   []owner
	// See node.
	deleting, orphans, foreground bool
	// dependents is the number of dependents.
	dependents int
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
		location: n.location, uid: n.uid, name: n.name, revision: n.revision, owners: n.owners,
		deleting: n.deleting, orphans: n.orphans, foreground: n.foreground,
		dependents: len(n.dependents),
	}, true
}

// namespace returns the namespace of an object, "" if it was not seen.
func (g *graph) namespace(uid types.UID) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.nodes[uid]; n != nil && !n.missing() {
		return n.location.namespace
	}
	return ""
}

// hasWaitingDependent reports whether a dependent of an object waits for the deletion of its own dependents.
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

// dependents returns the objects that name an object as their owner. If the owner is served by an extension API
// server, the dependents must also name its kind. So an extension API server cannot claim the dependents of a
// missing owner by using its UID.
func (g *graph) dependents(uid types.UID) []types.UID {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[uid]
	if n == nil {
		return nil
	}
	claimed := !n.missing() && n.location.remote
	out := make([]types.UID, 0, len(n.dependents))
	for dependent := range n.dependents {
		if !claimed || slices.ContainsFunc(dependent.owners, func(o owner) bool { return o.mayName(n) }) {
			out = append(out, dependent.uid)
		}
	}
	return out
}

// isAbsent reports whether an owner is known not to exist.
func (g *graph) isAbsent(i identity) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.absent[i]
}

// setAbsent notes that an owner does not exist. If the node with this UID was plain before and has this name, the
// name came from a dependent and is wrong. The other dependents are then checked too.
func (g *graph) setAbsent(i identity) (e effects) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.absent.add(i)
	if n := g.nodes[i.uid]; n != nil && !n.missing() && !n.location.remote && n.revision == 0 && n.name == i.name {
		n.name = ""
		for dependent := range n.dependents {
			e.add(dependent)
		}
	}
	return e
}

// absentOwners are owners that do not exist. As a UID is never used again, none of them comes back.
type absentOwners map[identity]bool

// maxAbsent bounds the number of absentOwners.
const maxAbsent = 1024

func (a absentOwners) add(i identity) {
	if len(a) >= maxAbsent {
		for other := range a { // any owner: it is read again if it is needed
			delete(a, other)
			break
		}
	}
	a[i] = true
}
