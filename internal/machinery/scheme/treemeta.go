package scheme

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A TreeEntry is an entry of the managedFields of a tree.
type TreeEntry struct {
	// Head is the entry without fieldsV1.
	Head metav1.ManagedFieldsEntry
	// Fields is its fieldsV1 and Whole the entry itself. Both are parts of the tree.
	Fields, Whole map[string]any
}

// TreeEntries returns the managedFields of a tree without decoding the fields in them, nil if
// there are none. It returns false if the managedFields may be malformed. The caller then uses
// the slower method GetManagedFields, which decodes everything.
func TreeEntries(tree *unstructured.Unstructured) ([]TreeEntry, bool) {
	meta, ok := tree.Object["metadata"].(map[string]any)
	if !ok {
		return nil, tree.Object["metadata"] == nil
	}
	value, found := meta["managedFields"]
	if !found {
		return nil, true
	}
	list, ok := value.([]any)
	entries := make([]TreeEntry, len(list))
	for i := range list {
		ok = ok && entries[i].read(list[i])
	}
	return entries, ok
}

func (e *TreeEntry) read(value any) bool {
	var isMap bool
	if e.Whole, isMap = value.(map[string]any); !isMap {
		return false
	}
	for name, v := range e.Whole {
		if name == "fieldsV1" {
			if e.Fields, isMap = v.(map[string]any); !isMap {
				return false
			}
			continue
		}
		text, ok := v.(string)
		if !ok {
			return false
		}
		switch name {
		case "manager":
			e.Head.Manager = text
		case "operation":
			e.Head.Operation = metav1.ManagedFieldsOperationType(text)
		case "apiVersion":
			e.Head.APIVersion = text
		case "fieldsType":
			e.Head.FieldsType = text
		case "subresource":
			e.Head.Subresource = text
		case "time":
			t, err := time.Parse(time.RFC3339, text)
			if err != nil {
				return false
			}
			e.Head.Time = &metav1.Time{Time: t.Local()}
		default:
			return false
		}
	}
	return true
}
