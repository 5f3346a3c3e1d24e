package managed

import (
	"sort"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EntryKey is what tells the managers of an object apart.
type EntryKey struct {
	Manager, APIVersion, Subresource string
	Operation                        metav1.ManagedFieldsOperationType
}

// KeyOf returns the key of an entry.
func KeyOf(e *metav1.ManagedFieldsEntry) EntryKey {
	return EntryKey{e.Manager, e.APIVersion, e.Subresource, e.Operation}
}

// Sort puts entries in the order in which an object has them.
func Sort(entries []metav1.ManagedFieldsEntry) {
	sort.SliceStable(entries, func(i, j int) bool { return entryLess(&entries[i], &entries[j]) })
}
