package write

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// withoutFields returns the metadata of an object without the fields in its managedFields, which validation does not
// use: the fields of an unstructured object would have to be encoded.
func withoutFields(obj registry.Object) metav1.Object {
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

// treeMeta is the metadata of a custom resource for validation. Its managedFields have everything except
// fieldsV1.
type treeMeta struct {
	metav1.Object
	managed []metav1.ManagedFieldsEntry
}

func (m treeMeta) GetManagedFields() []metav1.ManagedFieldsEntry { return m.managed }
