package write

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keelson-dev/keelson/scheme"

	"github.com/keelson-dev/keelson/registry"
)

// metaOf returns the metadata of an object for validation, which looks at all of
// managedFields but the fields in them: those of a tree would have to be encoded.
func metaOf(obj registry.Object) metav1.Object {
	tree, isTree := obj.(*unstructured.Unstructured)
	if !isTree {
		return obj
	}
	entries, ok := scheme.TreeEntries(tree)
	if !ok {
		return obj
	}
	meta := treeMeta{Object: obj, managed: make([]metav1.ManagedFieldsEntry, len(entries))}
	for i := range entries {
		meta.managed[i] = entries[i].Head
	}
	return meta
}

type treeMeta struct {
	metav1.Object
	managed []metav1.ManagedFieldsEntry
}

func (m treeMeta) GetManagedFields() []metav1.ManagedFieldsEntry { return m.managed }
