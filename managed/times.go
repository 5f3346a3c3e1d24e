package managed

import (
	"bytes"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/registry"
)

// KeepTimes gives object the managedFields of live where the two objects differ in
// nothing but the times in them: what the request changed was put back on its way
// (a reset field, a field that admission sets), so that there is nothing to write.
// Call it when object is what would be stored.
func KeepTimes(live, object registry.Object) {
	old, entries := live.GetManagedFields(), object.GetManagedFields()
	if !onlyTimesDiffer(old, entries) {
		return
	}
	object.SetManagedFields(old)
	if !same(live, object) {
		object.SetManagedFields(entries)
	}
}

// onlyTimesDiffer says that at least one time does, and nothing else.
func onlyTimesDiffer(old, entries []metav1.ManagedFieldsEntry) bool {
	if len(old) != len(entries) {
		return false
	}
	differs := false
	for i := range entries {
		found := false
		for j := range old {
			a, b := &entries[i], &old[j]
			if !sameOwner(a, b) || a.APIVersion != b.APIVersion || a.FieldsType != b.FieldsType || (a.FieldsV1 == nil) != (b.FieldsV1 == nil) {
				continue
			}
			if a.FieldsV1 != nil && !bytes.Equal(a.FieldsV1.GetRawBytes(), b.FieldsV1.GetRawBytes()) {
				return false
			}
			found = true
			differs = differs || seconds(a.Time) != seconds(b.Time)
			break
		}
		if !found {
			return false
		}
	}
	return differs
}

// same compares in the cheap way first: mostly something did change.
func same(a, b registry.Object) bool {
	l, r := reflect.ValueOf(a), reflect.ValueOf(b)
	if l.Type() != r.Type() {
		return false
	}
	if g := goTypeOf(l.Type()); g.form == pointerForm && g.element.form == structForm && !g.equal(l, r) {
		return false
	}
	return equality.Semantic.DeepEqualWithNilDifferentFromEmpty(a, b)
}
