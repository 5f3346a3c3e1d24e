package managed

import (
	"reflect"
	"sync"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/keelson-dev/keelson/registry"
)

// fast does what the general algorithm does, for objects and managers of one
// version whose lists hold no duplicates. What it is not sure of it leaves to that.
type fast struct {
	m     *Manager
	cache *Cache

	// once fills in what follows, when the kind is first written.
	once  sync.Once
	blank registry.Object
	shape *shape
	// plan is nil where objects are trees.
	plan *plan
	// usable says that there is a schema to go by.
	usable bool
	// reset are the fields that are not owned here; nil where there are none.
	reset *set
}

// buffers are what fieldsV1 are written to, up to maxBuffer bytes.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const maxBuffer = 64 << 10

var walks = sync.Pool{New: func() any { return new(walk) }}

// stripped are the fields that no manager owns by an operation of its own.
var stripped = pathSet("apiVersion", "kind", "metadata",
	"metadata.name", "metadata.namespace", "metadata.creationTimestamp", "metadata.selfLink",
	"metadata.uid", "metadata.clusterName", "metadata.generation", "metadata.managedFields",
	"metadata.resourceVersion")

func newFast(m *Manager) *fast { return &fast{m: m, cache: m.config.Cache} }

// empty returns an object without fields, which is not to be changed.
func (f *fast) empty() registry.Object {
	f.prepare()
	return f.blank
}

func (f *fast) prepare() {
	f.once.Do(func() {
		f.blank = f.m.make()
		f.blank.GetObjectKind().SetGroupVersionKind(f.m.config.Kind)
		value, err := f.m.config.Types.ObjectToTyped(f.blank)
		if err != nil {
			return
		}
		if f.shape = shapeOf(value.Schema(), value.TypeRef()); f.shape == nil {
			return
		}
		if set := f.m.config.Reset[fieldpath.APIVersion(f.m.apiVersion)]; set != nil && !set.Empty() {
			raw, err := set.ToJSON()
			if err != nil {
				return
			}
			var ok bool
			if f.reset, ok = parseSet(string(raw)); !ok {
				return
			}
		}
		if _, isTree := f.blank.(*unstructured.Unstructured); !isTree {
			f.plan = f.planned(reflect.TypeOf(f.blank))
		}
		f.usable = true
	})
}

// planned compiles the comparison of the kind's Go type. The fields that are not
// owned here are not even looked at.
func (f *fast) planned(t reflect.Type) *plan {
	p := planner{made: map[planPair]*plan{}}
	root := p.planOf(goTypeOf(t), f.shape)
	p.mark()
	for i := range root.fields {
		root.fields[i].skip = f.reset.has(root.fields[i].name)
	}
	return root
}

// owner is one entry of managedFields.
type owner struct {
	entry metav1.ManagedFieldsEntry
	// set are the entry's fields, decoded.
	set *set
	// dirty says that the entry's fields are not those of set.
	dirty bool
	// tree are the fields of an entry in a tree, whose own there are none; whole is
	// that entry as it was, nil after a change.
	tree, whole map[string]any
}

// update is Update; false leaves object as it was, to the general algorithm.
func (f *fast) update(live, object registry.Object, manager string, now time.Time) bool {
	f.prepare()
	if !f.usable || !utf8.ValidString(manager) {
		return false
	}
	owners, ok := f.owners(live, object)
	if !ok {
		return false
	}
	if len(owners) == 0 && live.GetUID() != "" {
		// An object that nobody tracks starts to be when it is next applied to.
		object.SetManagedFields(nil)
		return true
	}
	restore := hide(object)
	w := walks.Get().(*walk)
	defer walks.Put(w)
	if f.compare(w, live, object) {
		touched, gone := w.result(changed).within(f.reset), w.result(removed).within(f.reset)
		if owners, ok = f.changed(owners, touched, gone, manager, now); ok && f.record(object, owners) {
			return true
		}
	}
	restore()
	return false
}

func (f *fast) compare(w *walk, live, object registry.Object) bool {
	w.begin(f.reset)
	if f.plan == nil {
		l, okL := live.(*unstructured.Unstructured)
		r, okR := object.(*unstructured.Unstructured)
		if !okL || !okR {
			return false
		}
		w.trees(f.shape, tree{l.Object, true}, tree{r.Object, true})
		return !w.failed
	}
	l, r := reflect.ValueOf(live), reflect.ValueOf(object)
	if t := reflect.TypeOf(f.blank); l.Type() != t || r.Type() != t {
		return false
	}
	w.values(f.plan, l, r)
	return !w.failed
}

// owners decodes the entries that an update starts from: those of the request, or
// those of the live object where the request has none or none that can be read.
func (f *fast) owners(live, object registry.Object) ([]owner, bool) {
	if f.m.config.Subresource == "" {
		sent, ok := listed(object)
		if !ok {
			return nil, false
		}
		if len(sent) == 0 && sent != nil || len(sent) == 1 && sent[0].blank() {
			return nil, true
		}
		if len(sent) > 0 {
			return sent, f.decode(sent)
		}
	}
	owners, ok := listed(live)
	return owners, ok && f.decode(owners)
}

// blank says that nothing of the entry is set.
func (o *owner) blank() bool {
	return reflect.DeepEqual(o.entry, metav1.ManagedFieldsEntry{}) && o.tree == nil
}

// decode gives up on entries that the general algorithm has to judge or to convert.
func (f *fast) decode(owners []owner) bool {
	for i := range owners {
		o := &owners[i]
		e := &o.entry
		if e.Operation != metav1.ManagedFieldsOperationApply && e.Operation != metav1.ManagedFieldsOperationUpdate ||
			e.APIVersion != f.m.apiVersion || e.FieldsType != "FieldsV1" || !utf8.ValidString(e.Manager) {
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
			ok = ok && f.shape.fits(o.set, false)
		case e.FieldsV1 != nil:
			o.set, ok = f.cache.set(e.FieldsV1.GetRawBytes(), f.shape)
		}
		if !ok {
			return false
		}
	}
	return true
}

// sameOwner is for entries of one version.
func sameOwner(a, b *metav1.ManagedFieldsEntry) bool {
	return a.Manager == b.Manager && a.Operation == b.Operation && a.Subresource == b.Subresource
}

// changed returns what becomes of the owners, which it owns, when manager changed and
// removed fields.
func (f *fast) changed(owners []owner, touched, gone *set, manager string, now time.Time) ([]owner, bool) {
	if manager == "" {
		manager = "unknown"
	}
	self := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: f.m.apiVersion,
		FieldsType: "FieldsV1", Subresource: f.m.config.Subresource,
	}
	own := touched.minus(stripped)
	mine := -1
	updaters := 0
	for i := range owners {
		o := &owners[i]
		if sameOwner(&o.entry, &self) {
			mine = i
			// What is taken away and owned again need not be.
			if !own.empty() && o.set.contains(own) && !o.set.meets(gone) && !o.set.meets(stripped) {
				own = nil
				o.touch(now)
				if o.entry.Operation == metav1.ManagedFieldsOperationUpdate {
					updaters++
				}
				continue
			}
		}
		if left := o.set.minus(touched).minus(gone); left != o.set {
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
		o.set, o.dirty = o.set.plus(own), true
		o.touch(now)
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
