package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// choices decides what happens next if several things can happen. If random is set, it decides at random.
// Otherwise a sequence of runs goes through every sequence of choices once (see next).
type choices struct {
	random       *rand.Rand
	begin        []int // the choices that the run begins with
	taken, among []int // the choices of the run so far, and the number of alternatives at each
}

// pick returns a number below n.
func (c *choices) pick(n int) int {
	if c.random != nil {
		return c.random.IntN(n)
	}
	picked := 0
	if i := len(c.taken); i < len(c.begin) {
		picked = min(c.begin[i], n-1)
	}
	c.taken, c.among = append(c.taken, picked), append(c.among, n)
	return picked
}

// next prepares the next run. It returns false after the last run.
func (c *choices) next() bool {
	for i := len(c.taken) - 1; i >= 0; i-- {
		if c.taken[i]+1 < c.among[i] {
			c.begin = append(slices.Clone(c.taken[:i]), c.taken[i]+1)
			c.taken, c.among = nil, nil
			return true
		}
	}
	return false
}

// model is a store with a collector. Each object is of a resource of its own, so that the changes of different
// objects reach the graph in any order. The name of an object is its UID. Everything runs in one goroutine;
// choices decides the order.
type model struct {
	*choices
	c        *Collector
	objects  map[types.UID]*metav1.PartialObjectMetadata
	revision int64
	events   map[types.UID][]client.MetadataChange // changes that the graph does not have yet, by object
	todo     []func(*model)                        // what users do, in order
	check    modelQueue
	orphan   modelQueue
	// nested allows other things to happen in the middle of a check; depth is the current depth of nesting.
	nested bool
	depth  int
	// orphans is held by changes of the dependents of one object, which come from several goroutines.
	orphans sync.Mutex
	// busy are the objects whose check has not ended. failed are the objects whose check failed; they are tried
	// again after a change.
	busy   map[types.UID]bool
	failed []func()
	faults []string
	log    []string

	// The store knows these revisions, the collector does not: when the deletion of an object in the foreground
	// began, when the object was orphaned, and when an object got a reference.
	waiting, orphaned map[types.UID]int64
	referred          map[[2]types.UID]int64
}

// modelQueue is a queue of objects, any of which may be next.
type modelQueue []types.UID

func (q *modelQueue) Add(uid types.UID) {
	if !slices.Contains(*q, uid) {
		*q = append(*q, uid)
		slices.Sort(*q)
	}
}
func (q *modelQueue) AddAfter(uid types.UID, _ time.Duration)                          { q.Add(uid) }
func (q *modelQueue) Run(context.Context, int, func(context.Context, types.UID) error) {}
func (q *modelQueue) Close()                                                           {}

func newModel(ch *choices, todo []func(*model)) *model {
	m := &model{
		choices: ch, todo: todo,
		objects: map[types.UID]*metav1.PartialObjectMetadata{}, events: map[types.UID][]client.MetadataChange{},
		busy: map[types.UID]bool{}, waiting: map[types.UID]int64{}, orphaned: map[types.UID]int64{},
		referred: map[[2]types.UID]int64{},
	}
	m.c = &Collector{
		Options: Options{Local: m, Remote: m, Resources: m, Log: slog.New(slog.DiscardHandler), Now: time.Now},
		graph:   newGraph(), check: &m.check, orphan: &m.orphan, settle: m.settle,
	}
	m.c.reports = newReporter(m.c)
	m.c.graph.listed()
	return m
}

// run runs the model until nothing is left to do, and returns the faults in the final state.
func (m *model) run() []string {
	for steps := 0; ; steps++ {
		if steps == 10_000 {
			return append(m.faults, "it does not end")
		}
		if m.step() {
			continue
		}
		if len(m.failed) == 0 {
			return append(m.faults, m.judge()...)
		}
		m.retry()
	}
}

// step does one of the things that can happen now. It returns false if there is none.
func (m *model) step() bool {
	var can []func()
	if len(m.todo) > 0 {
		can = append(can, func() {
			do := m.todo[0]
			m.todo = m.todo[1:]
			do(m)
			m.retry()
		})
	}
	for _, uid := range sortedKeys(m.events) {
		can = append(can, func() { m.deliver(uid) })
	}
	for _, q := range []*modelQueue{&m.check, &m.orphan} {
		for i, uid := range *q {
			if !m.busy[uid] {
				can = append(can, func() { *q = slices.Delete(*q, i, i+1); m.work(q, uid) })
			}
		}
	}
	if len(can) == 0 {
		return false
	}
	can[m.pick(len(can))]()
	return true
}

func sortedKeys(events map[types.UID][]client.MetadataChange) (keys []types.UID) {
	for uid, list := range events {
		if len(list) > 0 {
			keys = append(keys, uid)
		}
	}
	slices.Sort(keys)
	return keys
}

func (m *model) note(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

// deliver brings the next change of an object into the graph.
func (m *model) deliver(uid types.UID) {
	change := m.events[uid][0]
	m.events[uid] = m.events[uid][1:]
	m.note("the graph gets %s of %s at %d", change.Type, uid, change.Revision)
	p := locationOf(uid)
	if change.Type == "DELETED" {
		m.c.apply(m.c.graph.remove(p.resource.GroupResource(), uid))
	} else {
		m.c.apply(m.c.graph.set(p, change.Metadata, 1))
	}
	m.retry()
}

// work handles an object of a queue.
func (m *model) work(q *modelQueue, uid types.UID) {
	handle := m.c.checkObject
	if q == &m.orphan {
		handle = m.c.orphanDependents
	}
	m.note("%s is handled", uid)
	m.busy[uid] = true
	interruptible := m.nested
	m.nested = m.nested && q == &m.check
	err := handle(context.Background(), uid)
	m.nested = interruptible
	delete(m.busy, uid)
	if err != nil && !errors.Is(err, errInvalidOwner) {
		m.note("%s: %v", uid, err)
		m.failed = append(m.failed, func() { q.Add(uid) })
	}
}

func (m *model) retry() {
	for _, add := range m.failed {
		add()
	}
	m.failed = nil
}

// interrupt may do something else in the middle of a check.
func (m *model) interrupt() {
	if !m.nested || m.depth >= 2 || m.pick(3) > 0 {
		return
	}
	m.depth++
	m.step()
	m.depth--
}

// settle delivers all changes that were made before the call to the graph.
func (m *model) settle(context.Context) error {
	m.interrupt()
	until := m.revision
	for {
		var behind []types.UID
		for _, uid := range sortedKeys(m.events) {
			if m.events[uid][0].Revision <= until {
				behind = append(behind, uid)
			}
		}
		if len(behind) == 0 {
			m.interrupt()
			return nil
		}
		m.deliver(behind[m.pick(len(behind))])
	}
}

func locationOf(uid types.UID) *location {
	kind := strings.ToUpper(string(uid))
	return &location{
		resource:   schema.GroupVersionResource{Group: "model", Version: "v1", Resource: string(uid)},
		apiVersion: "model/v1", kind: kind, namespace: "ns",
	}
}

// changed publishes a change of an object.
func (m *model) changed(o *metav1.PartialObjectMetadata) {
	m.revision++
	change := client.MetadataChange{Type: "MODIFIED", Metadata: m.metadata(o, m.revision)}
	if o.DeletionTimestamp != nil && len(o.Finalizers) == 0 {
		change.Type = "DELETED"
		delete(m.objects, o.UID)
	} else {
		o.ResourceVersion = fmt.Sprint(m.revision)
	}
	maps.DeleteFunc(m.referred, func(key [2]types.UID, _ int64) bool {
		return key[0] == o.UID && !slices.Contains(uidsOf(o.OwnerReferences), key[1])
	})
	for _, r := range o.OwnerReferences {
		if key := [2]types.UID{o.UID, r.UID}; m.referred[key] == 0 {
			m.referred[key] = m.revision
		}
	}
	if o.DeletionTimestamp != nil && m.waiting[o.UID] == 0 {
		m.waiting[o.UID] = m.revision
	}
	if slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents) && m.orphaned[o.UID] == 0 {
		m.orphaned[o.UID] = m.revision
	}
	m.events[o.UID] = append(m.events[o.UID], change)
	m.note("%d: %s of %s, owners %v, finalizers %v, deleting %t", m.revision, change.Type, o.UID, uidsOf(o.OwnerReferences),
		o.Finalizers, o.DeletionTimestamp != nil)
}

func uidsOf(references []metav1.OwnerReference) (uids []types.UID) {
	for i := range references {
		uids = append(uids, references[i].UID)
	}
	return uids
}

func (m *model) metadata(o *metav1.PartialObjectMetadata, revision int64) client.Metadata {
	return client.Metadata{
		Namespace: o.Namespace, Name: o.Name, Revision: revision, Lifecycle: registry.Lifecycle{
			UID: o.UID, Deleting: o.DeletionTimestamp != nil, Finalizers: slices.Clone(o.Finalizers),
			Owners: slices.Clone(o.OwnerReferences),
		},
	}
}

func (m *model) find(ref client.Ref) (*metav1.PartialObjectMetadata, error) {
	m.interrupt()
	if o := m.objects[types.UID(ref.Name)]; o != nil {
		return o, nil
	}
	return nil, kerrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
}

// GetMetadata implements Objects.
func (m *model) GetMetadata(_ context.Context, ref client.Ref) (client.Metadata, error) {
	o, err := m.find(ref)
	if err != nil {
		return client.Metadata{}, err
	}
	return m.metadata(o, 0), nil
}

// Update implements Objects.
func (m *model) Update(_ context.Context, r client.UpdateRequest) (registry.Object, error) {
	if !m.nested { // see orphans
		m.orphans.Lock()
		defer m.orphans.Unlock()
	}
	o, err := m.find(r.Ref)
	if err != nil {
		return nil, err
	}
	next := o.DeepCopy()
	if err := r.Change(next); err != nil {
		return nil, err
	}
	if !m.nested && m.isWaiting(o) && !m.isWaiting(next) { // settle was just before
		for _, uid := range m.blockers(o.UID) {
			if m.referred[[2]types.UID{uid, o.UID}] < m.waiting[o.UID] {
				m.faults = append(m.faults, fmt.Sprintf("%s goes although %s blocks it", o.UID, uid))
			}
		}
	}
	m.objects[next.UID] = next
	m.changed(next)
	return next, nil
}

// Delete implements Objects. The collector calls it; it must not delete an object that has to stay.
func (m *model) Delete(_ context.Context, r client.DeleteRequest) (bool, error) {
	o, err := m.find(r.Ref)
	if err != nil {
		return false, err
	}
	if v := r.Options.Preconditions.ResourceVersion; v != nil && *v != o.ResourceVersion {
		return false, kerrors.NewConflict(r.Resource.GroupResource(), r.Name, errors.New("it has changed"))
	}
	if reason := m.mustStay(o); reason != "" {
		m.faults = append(m.faults, fmt.Sprintf("%s is deleted although %s", o.UID, reason))
	}
	m.delete(o.UID, *r.Options.PropagationPolicy)
	return false, nil
}

func (m *model) delete(uid types.UID, policy metav1.DeletionPropagation) {
	o := m.objects[uid].DeepCopy()
	m.objects[uid] = o
	if o.DeletionTimestamp == nil {
		o.DeletionTimestamp = &metav1.Time{Time: time.Unix(m.revision, 0)}
	}
	with := map[metav1.DeletionPropagation]string{
		metav1.DeletePropagationForeground: metav1.FinalizerDeleteDependents,
		metav1.DeletePropagationOrphan:     metav1.FinalizerOrphanDependents,
	}[policy]
	o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool {
		return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
	})
	delete(m.orphaned, uid) // the last request counts
	if with != "" {
		o.Finalizers = append(o.Finalizers, with)
	}
	m.changed(o)
}

// ListMetadata implements Objects.
func (m *model) ListMetadata(context.Context, client.ListRequest, func(client.Metadata) bool) (int64, error) {
	return 0, errors.New("the model delivers states itself")
}

// WatchMetadata implements Objects.
func (m *model) WatchMetadata(context.Context, client.WatchRequest) (Watch, error) {
	return nil, errors.New("the model delivers changes itself")
}

// Preferred implements Resources.
func (m *model) Preferred() ([]discovery.Resource, []schema.GroupVersion) { return nil, nil }

// OfKind implements Resources.
func (m *model) OfKind(k schema.GroupVersionKind) (discovery.Resource, bool) {
	p := locationOf(types.UID(strings.ToLower(k.Kind)))
	return discovery.Resource{GroupVersionResource: p.resource, Kind: p.kind, Namespaced: true}, true
}
