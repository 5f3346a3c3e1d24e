package scheme

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A TreeEntry is one of the managedFields of a tree.
type TreeEntry struct {
	// Head is the entry without its fields.
	Head metav1.ManagedFieldsEntry
	// Fields are its fieldsV1, Whole is the entry itself: parts of the tree.
	Fields, Whole map[string]any
}

// TreeEntries reads the managedFields of a tree and leaves the fields in them as they
// are: nil if there are none. It says false of what is not sure to be well-formed;
// the tree's own GetManagedFields, which decodes and encodes all of it, has the last
// word on that.
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
