package managed

import (
	"bytes"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keelson-dev/keelson/registry"
)

// KeepTimes gives object the managedFields of live where the two objects differ in
// nothing but the times in them: what the request changed was put back on its way
// (a reset field, a field that admission sets), so that there is nothing to write.
// Call it when object is what would be stored.
func KeepTimes(live, object registry.Object) {
	old, okOld := listed(live)
	entries, okNew := listed(object)
	if !okOld || !okNew || !onlyTimesDiffer(old, entries) {
		return
	}
	restore := hide(object)
	give(live, object)
	if !same(live, object) {
		restore()
	}
}

// onlyTimesDiffer says that at least one time does, and nothing else.
func onlyTimesDiffer(old, entries []owner) bool {
	if len(old) != len(entries) {
		return false
	}
	differs := false
	for i := range entries {
		found := false
		for j := range old {
			a, b := &entries[i], &old[j]
			if !sameOwner(&a.entry, &b.entry) || a.entry.APIVersion != b.entry.APIVersion || a.entry.FieldsType != b.entry.FieldsType {
				continue
			}
			if !sameFields(a, b) {
				return false
			}
			found = true
			differs = differs || seconds(a.entry.Time) != seconds(b.entry.Time)
			break
		}
		if !found {
			return false
		}
	}
	return differs
}

func sameFields(a, b *owner) bool {
	if v, w := a.entry.FieldsV1, b.entry.FieldsV1; v != nil && w != nil {
		return bytes.Equal(v.GetRawBytes(), w.GetRawBytes())
	} else if v != w {
		return false
	}
	return (a.tree == nil) == (b.tree == nil) && equalTrees(a.tree, b.tree)
}

// same compares in the cheap way first: mostly something did change.
func same(a, b registry.Object) bool {
	l, r := reflect.ValueOf(a), reflect.ValueOf(b)
	if l.Type() != r.Type() {
		return false
	}
	if tree, isTree := a.(*unstructured.Unstructured); isTree && !equalTrees(tree.Object, b.(*unstructured.Unstructured).Object) {
		return false
	}
	if g := goTypeOf(l.Type()); g.form == pointerForm && g.element.form == structForm && !g.equal(l, r) {
		return false
	}
	return equality.Semantic.DeepEqualWithNilDifferentFromEmpty(a, b)
}
