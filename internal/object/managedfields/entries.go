package managedfields

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// The managedFields of a tree are a part of the tree: fieldsV1 are maps there, not bytes, and their members have no
// order.

const managedFields = "managedFields"

// entriesOf returns the entries of an object, nil if it has none, without decoding their field sets. It returns false
// if the general algorithm has to handle them.
func entriesOf(object registry.Object) ([]owner, bool) {
	var owners []owner
	tree, isTree := object.(*unstructured.Unstructured)
	if !isTree {
		entries := object.GetManagedFields()
		if entries != nil {
			owners = make([]owner, len(entries))
		}
		for i := range entries {
			owners[i].entry = entries[i]
		}
		return owners, true
	}
	entries, ok := scheme.TreeEntries(tree)
	if entries != nil {
		owners = make([]owner, len(entries))
	}
	for i := range entries {
		owners[i] = owner{entry: entries[i].Head, tree: entries[i].Fields, whole: entries[i].Whole}
	}
	return owners, ok
}

// detachEntries removes the managedFields from an object; restore puts them back.
func detachEntries(object registry.Object) (restore func()) {
	tree, isTree := object.(*unstructured.Unstructured)
	if !isTree {
		sent := object.GetManagedFields()
		object.SetManagedFields(nil)
		return func() { object.SetManagedFields(sent) }
	}
	meta, _ := tree.Object["metadata"].(map[string]any)
	sent, has := meta[managedFields]
	if !has {
		return func() {}
	}
	delete(meta, managedFields)
	return func() { meta[managedFields] = sent }
}

// copyEntries sets the managedFields of the object to, which has none, to those of the object from.
func copyEntries(from, to registry.Object) {
	tree, isTree := from.(*unstructured.Unstructured)
	if !isTree {
		to.SetManagedFields(from.GetManagedFields())
		return
	}
	old, _ := tree.Object["metadata"].(map[string]any)
	if meta, ok := to.(*unstructured.Unstructured).Object["metadata"].(map[string]any); ok {
		meta[managedFields] = old[managedFields]
	}
}

// record makes owners the managedFields of an object. It returns false, and leaves the object as it is, where the
// general algorithm has to write them.
func (inc *incremental) record(object registry.Object, owners []owner) bool {
	owners = slices.DeleteFunc(owners, func(o owner) bool { return o.set.empty() })
	for i := range owners {
		if o := &owners[i]; o.dirty && !inc.write(o) {
			return false
		}
	}
	if !slices.IsSortedFunc(owners, compareOwners) {
		slices.SortFunc(owners, compareOwners)
	}
	if tree, isTree := object.(*unstructured.Unstructured); isTree {
		recordInTree(tree, owners)
		return true
	}
	var entries []metav1.ManagedFieldsEntry
	for i := range owners {
		entries = append(entries, owners[i].entry)
	}
	object.SetManagedFields(entries)
	return true
}

// write writes the changed field set of an owner to its entry.
func (inc *incremental) write(o *owner) bool {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	raw, ok := o.set.fields((*buffer)[:0])
	if cap(raw) <= maxBuffer {
		*buffer = raw
	}
	switch {
	case !ok:
		return false
	case inc.plan == nil:
		o.tree, o.whole = inc.cache.tree(raw, o.set), nil
	default:
		o.entry.FieldsV1 = &metav1.FieldsV1{}
		o.entry.FieldsV1.SetRawBytes(raw) // copies them
	}
	return true
}

func recordInTree(tree *unstructured.Unstructured, owners []owner) {
	meta, _ := tree.Object["metadata"].(map[string]any)
	if len(owners) == 0 {
		delete(meta, managedFields)
		return
	}
	if _, has := tree.Object["metadata"]; !has {
		meta = map[string]any{}
		tree.Object["metadata"] = meta
	}
	if meta == nil {
		return // metadata is not an object, which validation will refuse
	}
	entries := make([]any, len(owners))
	for i := range owners {
		entries[i] = owners[i].asTree()
	}
	meta[managedFields] = entries
}

// asTree returns the entry as a part of a tree.
func (o *owner) asTree() map[string]any {
	if o.whole != nil {
		return o.whole
	}
	out := make(map[string]any, 7)
	for name, v := range map[string]string{
		"manager": o.entry.Manager, "operation": string(o.entry.Operation), "apiVersion": o.entry.APIVersion,
		"fieldsType": o.entry.FieldsType, "subresource": o.entry.Subresource,
	} {
		if v != "" {
			out[name] = v
		}
	}
	if t := o.entry.Time; t != nil && !t.IsZero() {
		out["time"] = t.UTC().Format(time.RFC3339)
	}
	out["fieldsV1"] = o.tree
	return out
}

// setTime gives the entry the time of the request.
func (o *owner) setTime(now time.Time) {
	o.entry.Time = &metav1.Time{Time: now.UTC()}
	o.whole = nil
}

// treeSet decodes the fieldsV1 of a tree. It returns false if the general algorithm has to decode them.
func treeSet(fields map[string]any) (*set, bool) {
	s, _, ok := treeItems(fields, 0)
	if s == nil {
		s = &set{}
	}
	return s, ok
}

// treeItems reads the paths below a step. member reports whether the path of the step itself is in the set.
func treeItems(fields map[string]any, depth int) (s *set, member, ok bool) {
	if len(fields) == 0 {
		return nil, true, fields != nil
	}
	s = &set{items: make([]item, 0, len(fields))}
	for name, v := range fields {
		below, isMap := v.(map[string]any)
		if !isMap || depth > maxSetDepth {
			return nil, false, false
		}
		if name == "." {
			if member = len(below) == 0; !member {
				return nil, false, false
			}
			continue
		}
		it := item{}
		if it.step, ok = parseStep(name); !ok || !it.step.isNamed(name) {
			return nil, false, false
		}
		if it.sub, it.member, ok = treeItems(below, depth+1); !ok {
			return nil, false, false
		}
		s.items = append(s.items, it)
	}
	slices.SortFunc(s.items, func(a, b item) int { return a.step.compare(&b.step) })
	return s, member, len(s.items) > 0
}

// tree returns the set as the fieldsV1 of a tree. The set must be one that fields can write.
func (s *set) tree() map[string]any {
	out := map[string]any{}
	for i := range itemsOf(s) {
		it := &s.items[i]
		below := it.sub.tree()
		if it.member && len(below) > 0 {
			below["."] = map[string]any{}
		}
		out[it.step.text()] = below
	}
	return out
}

// text returns the name that the step has in fieldsV1.
func (s *step) text() string {
	if s.kind == fieldStep {
		return "f:" + s.name
	}
	var buffer [64]byte
	escaped, _ := s.appendTo(buffer[:0])
	text, _ := unescape(string(escaped))
	return text
}

// isNamed reports whether name is the name that text returns. The same step may also have other names in fieldsV1.
func (s *step) isNamed(name string) bool { return s.kind == fieldStep || s.text() == name }
