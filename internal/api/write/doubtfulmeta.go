package write

import (
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/names"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// doubtfulMeta is the metadata of an object without its valid labels and annotations. It exists to save time:
// apimachinery checks labels and annotations with regular expressions, for an update several times. Most of them are
// valid, and package names finds that out faster. So apimachinery gets only the others.
type doubtfulMeta struct {
	metav1.Object
	labels, annotations map[string]string
}

func (m *doubtfulMeta) GetLabels() map[string]string      { return m.labels }
func (m *doubtfulMeta) GetAnnotations() map[string]string { return m.annotations }

// metaOf returns the metadata of an object for validation.
func metaOf(obj registry.Object) metav1.Object {
	m := &doubtfulMeta{Object: withoutFields(obj)}
	m.labels = doubtful(obj.GetLabels(), func(key, value string) bool {
		return len(names.IsLabelKey(key)) == 0 && len(names.IsLabelValue(value)) == 0
	})
	annotations := obj.GetAnnotations()
	// The size of all annotations together is limited. If it is too large, validation has to see all of them.
	if validation.ValidateAnnotationsSize(annotations) != nil {
		m.annotations = annotations // their size counts
	} else {
		// A key that is not valid as it is may be so in lower case; that is left to validation.
		m.annotations = doubtful(annotations, func(key, _ string) bool { return len(names.IsLabelKey(key)) == 0 })
	}
	return m
}

// doubtful returns the entries that are not valid.
func doubtful(entries map[string]string, valid func(key, value string) bool) map[string]string {
	var out map[string]string
	for key, value := range entries {
		if valid(key, value) {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	return out
}
