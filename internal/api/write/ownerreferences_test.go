package write

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestDuplicateOwners checks that references are equal only if all their fields are.
func TestDuplicateOwners(t *testing.T) {
	yes, no, alsoNo := true, false, false
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "a", UID: "1"}
	with := func(change func(*metav1.OwnerReference)) metav1.OwnerReference {
		out := ref
		change(&out)
		return out
	}
	different := []metav1.OwnerReference{
		ref, with(func(r *metav1.OwnerReference) { r.UID = "2" }), with(func(r *metav1.OwnerReference) { r.Name = "b" }),
		with(func(r *metav1.OwnerReference) { r.Kind = "Node" }), with(func(r *metav1.OwnerReference) { r.APIVersion = "v2" }),
		with(func(r *metav1.OwnerReference) { r.Controller = &yes }), with(func(r *metav1.OwnerReference) { r.Controller = &no }),
		with(func(r *metav1.OwnerReference) { r.BlockOwnerDeletion = &no }),
	}
	twice := append(slices.Clone(different), different...)
	twice = append(twice, with(func(r *metav1.OwnerReference) { r.Controller = &alsoNo }))
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{OwnerReferences: twice}}
	RemoveDuplicateOwners(t.Context(), obj)
	if got := obj.OwnerReferences; len(got) != len(different) {
		t.Errorf("%d references are left, want %d: %v", len(got), len(different), got)
	}
}

// TestManyOwners: a request may have a hundred thousand references. If each were compared with all others, this test
// would not end within its time.
func TestManyOwners(t *testing.T) {
	const number = 200_000
	refs := make([]metav1.OwnerReference, number)
	for i := range refs {
		refs[i] = metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "a", UID: types.UID(fmt.Sprint(i))}
	}
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{OwnerReferences: refs}}
	RemoveDuplicateOwners(t.Context(), obj)
	if n := len(obj.OwnerReferences); n != number {
		t.Errorf("%d references are left, want %d", n, number)
	}
}
