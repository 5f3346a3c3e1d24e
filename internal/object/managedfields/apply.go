package managedfields

import (
	"context"
	"reflect"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// beforeFirstApply is the manager that owns the fields of an object without managedFields at its first apply.
const beforeFirstApply = "before-first-apply"

// accepts reports whether the incremental algorithm can handle an apply at all. The general algorithm handles invalid
// configurations, and applies that migrate kubectl's last-applied annotation.
func (inc *incremental) accepts(live registry.Object, configuration map[string]any, manager string) bool {
	inc.prepare()
	if !inc.usable || !utf8.ValidString(manager) ||
		configuration["kind"] != inc.m.config.Kind.Kind || configuration["apiVersion"] != inc.m.apiVersion {
		return false
	}
	meta, _ := configuration["metadata"].(map[string]any)
	if _, sent := meta["managedFields"]; sent {
		return false
	}
	if annotations, _ := meta["annotations"].(map[string]any); annotations[lastApplied] != nil {
		return false
	}
	return live == nil || manager != "kubectl" || live.GetAnnotations()[lastApplied] == ""
}

// applied returns the fields that a configuration sets, except for those that are reset. It returns false for a
// configuration that the general algorithm has to handle.
func (inc *incremental) applied(w *walk, configuration map[string]any) (*set, bool) {
	w.begin(inc.reset)
	w.unique = true
	w.applied(inc.shape, configuration)
	return w.result(changed).without(inc.reset), !w.failed
}

// applyNew is Apply for an object that does not exist yet. The new object is the configuration, with defaults.
func (inc *incremental) applyNew(configuration map[string]any, manager string, now time.Time) (registry.Object, bool) {
	meta, _ := configuration["metadata"].(map[string]any)
	if meta["name"] == nil || !inc.accepts(nil, configuration, manager) {
		return nil, false
	}
	w := walks.Get().(*walk)
	defer walks.Put(w)
	set, ok := inc.applied(w, configuration)
	if !ok {
		return nil, false
	}
	object := inc.m.make()
	if t, isTree := object.(*unstructured.Unstructured); isTree {
		t.Object = runtime.DeepCopyJSON(configuration)
	} else if runtime.DefaultUnstructuredConverter.FromUnstructured(configuration, object) != nil {
		return nil, false
	}
	object.GetObjectKind().SetGroupVersionKind(inc.m.config.Kind)
	inc.setDefaults(object)
	self := owner{entry: inc.applier(manager), set: set.difference(neverOwned), dirty: true}
	self.setTime(now)
	return object, inc.record(object, []owner{self})
}

func (inc *incremental) setDefaults(object registry.Object) {
	if inc.m.config.Default != nil {
		inc.m.config.Default(object)
	}
}

// applier returns the entry of a manager that applies, without fields.
func (inc *incremental) applier(manager string) metav1.ManagedFieldsEntry {
	if manager == "" {
		manager = "unknown"
	}
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: inc.m.apiVersion,
		FieldsType: "FieldsV1", Subresource: inc.m.config.Subresource,
	}
}

// apply is Apply to an existing object. It returns false if the general algorithm has to be used: for errors other than
// conflicts, and for cases that this algorithm does not support.
//
// The result is a copy of live. The configuration is merged into it, and the fields are removed that the manager
// applied before, does not apply now, and no other manager owns. Only the fields in the present and the last
// configuration are examined; all others stay.
func (inc *incremental) apply(
	ctx context.Context, live registry.Object, configuration map[string]any, manager string, force bool, now time.Time,
) (_ registry.Object, ok bool, _ error) {
	if !inc.accepts(live, configuration, manager) {
		return nil, false, nil
	}
	owners, ok := entriesOf(live)
	if !ok || !inc.decode(owners) {
		return nil, false, nil
	}
	w := walks.Get().(*walk)
	defer walks.Put(w)
	set, ok := inc.applied(w, configuration)
	if !ok {
		return nil, false, nil
	}
	object := inc.bareCopy(live)
	if object == nil {
		return nil, false, nil
	}
	if len(owners) == 0 {
		if owners, ok = inc.ownAll(w, object, now); !ok {
			return nil, false, nil
		}
	}
	owners, mine := inc.position(owners, manager)
	last := owners[mine].set
	owners[mine].set = set
	m := merge{walk: w}
	if !inc.merge(&m, object, configuration, set, last, owners) {
		return nil, false, nil
	}
	modified, removedFields := w.result(changed), w.result(removed)
	if taken := modified.without(inc.reset); !force && !taken.empty() {
		if conflicts := conflictsOf(owners, mine, taken); len(conflicts) > 0 {
			return nil, true, conflictError(conflicts)
		}
	}
	takeFields(owners, mine, modified.without(inc.reset), removedFields.without(inc.reset))
	own := set.difference(neverOwned)
	owners[mine].set, owners[mine].dirty = own, !own.contains(last) || !last.contains(own)
	if !modified.empty() || !removedFields.empty() || m.reordered {
		if object, ok = inc.completed(ctx, object); !ok {
			return nil, false, nil
		}
		owners[mine].setTime(now)
	}
	return object, inc.record(object, owners), nil
}

// merge merges the configuration into object. mine are the fields that the configuration sets, last are those that
// the manager applied the last time. Fields of last that neither mine nor another owner has are removed.
func (inc *incremental) merge(
	m *merge, object registry.Object, configuration map[string]any, mine, last *set, owners []owner,
) bool {
	m.begin(nil)
	tree, isTree := object.(*unstructured.Unstructured)
	if isTree {
		m.whole(inc.shape, tree.Object)
		m.treeMembers(inc.shape, tree.Object, configuration)
	} else {
		v := reflect.ValueOf(object).Elem()
		m.check(inc.plan, v)
		m.value(inc.plan, v, true, configuration)
	}
	if m.failed || last.empty() {
		return !m.failed
	}
	if mine.contains(last) {
		return !m.emptyList || !m.emptyOverItems
	}
	if m.emptyList {
		return false
	}
	owned := mine
	for i := range owners {
		owned = owned.union(owners[i].set)
	}
	if last.has("apiVersion") || last.has("kind") {
		return false
	}
	if isTree {
		m.pruneTree(inc.shape, tree.Object, last, owned)
	} else {
		m.prune(inc.plan, reflect.ValueOf(object).Elem(), last, owned)
	}
	return !m.failed
}

// bareCopy returns a copy of an object without its managedFields, nil if the object is not of the Manager's kind.
func (inc *incremental) bareCopy(live registry.Object) registry.Object {
	if reflect.TypeOf(live) != reflect.TypeOf(inc.blank) {
		return nil
	}
	var object registry.Object
	if tree, isTree := live.(*unstructured.Unstructured); isTree {
		object = &unstructured.Unstructured{Object: copyWithoutEntries(tree.Object)}
	} else {
		shallow := reflect.New(reflect.TypeOf(live).Elem())
		shallow.Elem().Set(reflect.ValueOf(live).Elem())
		object = shallow.Interface().(registry.Object)
		object.SetManagedFields(nil)
		object = object.DeepCopyObject().(registry.Object)
	}
	object.GetObjectKind().SetGroupVersionKind(inc.m.config.Kind)
	return object
}

// copyWithoutEntries copies a tree, but not its managedFields.
func copyWithoutEntries(tree map[string]any) map[string]any {
	out := make(map[string]any, len(tree))
	for name, v := range tree {
		meta, isMap := v.(map[string]any)
		if name != "metadata" || !isMap {
			out[name] = runtime.DeepCopyJSONValue(v)
			continue
		}
		bare := make(map[string]any, len(meta))
		for name, v := range meta {
			if name != managedFields {
				bare[name] = runtime.DeepCopyJSONValue(v)
			}
		}
		out[name] = bare
	}
	return out
}

// ownAll returns the owner beforeFirstApply of all fields of an object without managedFields.
func (inc *incremental) ownAll(w *walk, object registry.Object, now time.Time) ([]owner, bool) {
	if !inc.compare(w, inc.blank, object) {
		return nil, false
	}
	modified, removedFields := w.result(changed).without(inc.reset), w.result(removed).without(inc.reset)
	return inc.changed(nil, modified, removedFields, beforeFirstApply, now)
}

// position returns the index of the entry of a manager that applies. It adds the entry if it is missing.
func (inc *incremental) position(owners []owner, manager string) ([]owner, int) {
	self := inc.applier(manager)
	for i := range owners {
		if sameOwner(&owners[i].entry, &self) {
			return owners, i
		}
	}
	return append(owners, owner{entry: self}), len(owners)
}

// takeFields removes, from all owners except mine, the fields that an apply modified or removed.
func takeFields(owners []owner, mine int, modified, removedFields *set) {
	for i := range owners {
		if o := &owners[i]; i != mine {
			if left := o.set.difference(modified).difference(removedFields); left != o.set {
				o.set, o.dirty = left, true
			}
		}
	}
}

// completed returns a changed object with defaults, converted to the storage version and back, which drops fields that
// the storage version does not have.
func (inc *incremental) completed(ctx context.Context, object registry.Object) (registry.Object, bool) {
	inc.setDefaults(object)
	if inc.m.config.Kind.GroupVersion() == inc.m.config.Storage {
		return object, true
	}
	convert := &converter{config: inc.m.config, ctx: ctx}
	stored, err := convert.ConvertToVersion(object, inc.m.config.Storage)
	if err != nil {
		return nil, false
	}
	back, err := convert.ConvertToVersion(stored, inc.m.config.Kind.GroupVersion())
	if err != nil {
		return nil, false
	}
	return back.(registry.Object), true
}
