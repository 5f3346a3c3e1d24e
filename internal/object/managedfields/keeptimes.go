package managedfields

import (
	"bytes"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// KeepTimes sets the managedFields of object to those of live if the objects differ only in the times in
// managedFields. Then a reset field or admission has reverted the change of the request, and nothing has to be
// written. Call it with the object as it would be stored.
func KeepTimes(live, object registry.Object) {
	old, okOld := entriesOf(live)
	entries, okNew := entriesOf(object)
	if !okOld || !okNew || !onlyTimesDiffer(old, entries) {
		return
	}
	restore := detachEntries(object)
	copyEntries(live, object)
	if !same(live, object) {
		restore()
	}
}

// onlyTimesDiffer reports whether entries differ in at least one time, and in nothing else.
func onlyTimesDiffer(old, entries []owner) bool {
	if len(old) != len(entries) {
		return false
	}
	differs := false
	for i := range entries {
		found := false
		for j := range old {
			a, b := &entries[i], &old[j]
			if !sameOwner(&a.entry, &b.entry) || a.entry.APIVersion != b.entry.APIVersion ||
				a.entry.FieldsType != b.entry.FieldsType {
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
	return (a.tree == nil) == (b.tree == nil) && scheme.EqualTreeValues(a.tree, b.tree)
}

// same reports whether two objects are equal. A cheap comparison comes first, because most objects differ.
func same(a, b registry.Object) bool {
	l, r := reflect.ValueOf(a), reflect.ValueOf(b)
	if l.Type() != r.Type() {
		return false
	}
	if tree, isTree := a.(*unstructured.Unstructured); isTree {
		if !scheme.EqualTreeValues(tree.Object, b.(*unstructured.Unstructured).Object) {
			return false
		}
	}
	if g := goTypeOf(l.Type()); g.kind == pointerKind && g.element.kind == structKind && !g.equal(l, r) {
		return false
	}
	return equality.Semantic.DeepEqualWithNilDifferentFromEmpty(a, b)
}
