package managedfields

import (
	"reflect"
	"sync"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// incremental is the incremental algorithm for one Manager: see the package comment. Its methods return false where
// the general algorithm has to do the work.
type incremental struct {
	m     *Manager
	cache *Cache

	// once guards what follows, which prepare makes when an object of the kind is first written.
	once sync.Once
	// blank is an object without fields.
	blank registry.Object
	shape *shape
	// plan is nil where objects are trees.
	plan *plan
	// usable means that the kind has a schema that the algorithm supports.
	usable bool
	// reset are the fields that cannot be set through the Manager; nil if there are none.
	reset *set
	// tapeName makes the tapes of the Manager differ from those of others.
	tapeName string
}

// buffers are reused for writing fieldsV1; those of more than maxBuffer bytes are dropped.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const maxBuffer = 64 << 10

var walks = sync.Pool{New: func() any { return new(walk) }}

// neverOwned are fields that a manager does not own although it sets them.
var neverOwned = setOfPaths("apiVersion", "kind", "metadata",
	"metadata.name", "metadata.namespace", "metadata.creationTimestamp", "metadata.selfLink",
	"metadata.uid", "metadata.clusterName", "metadata.generation", "metadata.managedFields",
	"metadata.resourceVersion")

func newIncremental(m *Manager) *incremental { return &incremental{m: m, cache: m.config.Cache} }

// empty returns an object without fields, which must not be changed.
func (inc *incremental) empty() registry.Object {
	inc.prepare()
	return inc.blank
}

// prepare compiles the schema of the kind, once.
func (inc *incremental) prepare() {
	inc.once.Do(func() {
		inc.blank = inc.m.make()
		inc.blank.GetObjectKind().SetGroupVersionKind(inc.m.config.Kind)
		inc.tapeName = inc.m.config.Kind.String() + "/" + inc.m.config.Subresource + "\x00"
		if set := inc.m.config.Reset[fieldpath.APIVersion(inc.m.apiVersion)]; set != nil && !set.Empty() {
			raw, err := set.ToJSON()
			if err != nil {
				return
			}
			var ok bool
			if inc.reset, ok = parseSet(string(raw)); !ok {
				return
			}
		}
		inc.usable = inc.compile()
	})
}

// compile sets the shape and, for a Go type, the plan. It returns false if only the general algorithm understands the
// schema.
func (inc *incremental) compile() bool {
	value, err := inc.m.config.Types.ObjectToTyped(inc.blank)
	if err != nil {
		return false
	}
	if inc.shape = shapeOf(value.Schema(), value.TypeRef()); inc.shape == nil {
		return false
	}
	if _, isTree := inc.blank.(*unstructured.Unstructured); !isTree {
		inc.plan = inc.planned(reflect.TypeOf(inc.blank))
	}
	return true
}

// planned compiles the plan of the Go type of the kind. A comparison skips the fields of the root that are reset, unless
// it may find there that the object does not fit its schema.
func (inc *incremental) planned(t reflect.Type) *plan {
	p := planner{made: map[planPair]*plan{}}
	root := p.planOf(goTypeOf(t), inc.shape)
	p.mark()
	for i := range root.fields {
		field := &root.fields[i]
		field.skip = inc.reset.has(field.name) && (field.plan == nil || !field.plan.holdsOmittedKeys(map[*plan]bool{}))
	}
	return root
}

// An owner is one entry of managedFields.
type owner struct {
	entry metav1.ManagedFieldsEntry
	// set is the decoded field set of the entry.
	set *set
	// dirty means that set was changed and must be written to the entry.
	dirty bool
	// tree is the field set if the object is a tree; such an entry has no FieldsV1. whole is the entire entry as
	// it was read; nil after a change of the entry.
	tree, whole map[string]any
}

// update is Update. If it returns false, object is as it was.
func (inc *incremental) update(live, object registry.Object, manager string, now time.Time) bool {
	inc.prepare()
	if !inc.usable || !utf8.ValidString(manager) {
		return false
	}
	if live == inc.blank && inc.create(object, manager, now) {
		return true
	}
	owners, ok := inc.owners(live, object)
	if !ok {
		return false
	}
	if len(owners) == 0 && live.GetUID() != "" {
		// An update adds no entries to an object without managedFields. The next apply does, for all its fields.
		object.SetManagedFields(nil)
		return true
	}
	restore := detachEntries(object)
	w := walks.Get().(*walk)
	defer walks.Put(w)
	if inc.compare(w, live, object) {
		modified, removedFields := w.result(changed).without(inc.reset), w.result(removed).without(inc.reset)
		if owners, ok = inc.changed(owners, modified, removedFields, manager, now); ok && inc.record(object, owners) {
			return true
		}
	}
	restore()
	return false
}

// compare records the differences between two objects in the sets of w.
func (inc *incremental) compare(w *walk, live, object registry.Object) bool {
	w.begin(inc.reset)
	if inc.plan == nil {
		l, okL := live.(*unstructured.Unstructured)
		r, okR := object.(*unstructured.Unstructured)
		if !okL || !okR {
			return false
		}
		w.trees(inc.shape, tree{l.Object, true}, tree{r.Object, true})
		return !w.failed
	}
	l, r := reflect.ValueOf(live), reflect.ValueOf(object)
	if t := reflect.TypeOf(inc.blank); l.Type() != t || r.Type() != t {
		return false
	}
	w.values(inc.plan, l, r)
	return !w.failed
}

// owners returns the decoded entries with which an update begins: those in the request, or those of the live object if
// the request has none. Requests to subresources cannot set entries.
func (inc *incremental) owners(live, object registry.Object) ([]owner, bool) {
	if inc.m.config.Subresource == "" {
		sent, ok := entriesOf(object)
		if !ok {
			return nil, false
		}
		if len(sent) == 0 && sent != nil || len(sent) == 1 && sent[0].blank() {
			return nil, true
		}
		if len(sent) > 0 {
			return sent, inc.decode(sent)
		}
	}
	owners, ok := entriesOf(live)
	return owners, ok && inc.decode(owners)
}

// blank reports whether no field of the entry is set.
func (o *owner) blank() bool {
	return reflect.DeepEqual(o.entry, metav1.ManagedFieldsEntry{}) && o.tree == nil
}

// decode decodes the field sets of owners. It returns false for entries that the general algorithm has to handle, and
// for entries of other versions, which have to be converted.
func (inc *incremental) decode(owners []owner) bool {
	for i := range owners {
		o := &owners[i]
		e := &o.entry
		if e.Operation != metav1.ManagedFieldsOperationApply && e.Operation != metav1.ManagedFieldsOperationUpdate ||
			e.APIVersion != inc.m.apiVersion || e.FieldsType != "FieldsV1" || !utf8.ValidString(e.Manager) {
			return false
		}
		for j := range i {
			if sameOwner(e, &owners[j].entry) {
				return false
			}
		}
		var ok bool
		switch {
		case o.tree != nil:
			o.set, ok = treeSet(o.tree)
			ok = ok && inc.shape.fitsSchema(o.set, false)
		case e.FieldsV1 != nil:
			o.set, ok = inc.cache.set(e.FieldsV1.GetRawBytes(), inc.shape)
		}
		if !ok {
			return false
		}
	}
	return true
}

// sameOwner reports whether two entries of one version have the same manager, operation and subresource.
func sameOwner(a, b *metav1.ManagedFieldsEntry) bool {
	return a.Manager == b.Manager && a.Operation == b.Operation && a.Subresource == b.Subresource
}

// changed returns the owners after an update by manager that modified and removed fields. It may change the slice
// owners. It returns false if there would be too many owners.
func (inc *incremental) changed(
	owners []owner, modified, removedFields *set, manager string, now time.Time,
) ([]owner, bool) {
	if manager == "" {
		manager = "unknown"
	}
	self := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: inc.m.apiVersion,
		FieldsType: "FieldsV1", Subresource: inc.m.config.Subresource,
	}
	own := modified.difference(neverOwned)
	mine := -1
	updaters := 0
	for i := range owners {
		o := &owners[i]
		if sameOwner(&o.entry, &self) {
			mine = i
			// The manager owns all of it already.
			if !own.empty() && o.set.contains(own) && !o.set.intersects(removedFields) && !o.set.intersects(neverOwned) {
				own = nil
				o.setTime(now)
				if o.entry.Operation == metav1.ManagedFieldsOperationUpdate {
					updaters++
				}
				continue
			}
		}
		if left := o.set.difference(modified).difference(removedFields); left != o.set {
			o.set, o.dirty = left, true
		}
		if o.entry.Operation == metav1.ManagedFieldsOperationUpdate && !o.set.empty() {
			updaters++
		}
	}
	if !own.empty() {
		if mine < 0 || owners[mine].set.empty() {
			updaters++
		}
		if mine < 0 {
			mine = len(owners)
			owners = append(owners, owner{entry: self})
		}
		o := &owners[mine]
		o.set, o.dirty = o.set.union(own), true
		o.setTime(now)
	}
	return owners, updaters <= MaxUpdateManagers
}

func compareOwners(p, q owner) int {
	switch {
	case entryLess(&p.entry, &q.entry):
		return -1
	case entryLess(&q.entry, &p.entry):
		return 1
	}
	return 0
}
