package write

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestDoubtfulMeta: validation finds the same errors in the metadata that metaOf returns as in the whole metadata.
func TestDoubtfulMeta(t *testing.T) {
	large := strings.Repeat("x", 140<<10)
	for name, meta := range map[string]metav1.ObjectMeta{
		"valid": {
			Labels: map[string]string{"a.example/b": "C-1", "c": ""}, Annotations: map[string]string{"a/B": "any <text>"},
		},
		"label key":             {Labels: map[string]string{"a": "b", "a b": "c"}},
		"label value":           {Labels: map[string]string{"a": "b", "c": "-"}},
		"annotation key":        {Annotations: map[string]string{"a": "b", "a//b": "c"}},
		"annotation upper case": {Annotations: map[string]string{"A.Example/b": "c"}},
		"annotations too large": {Annotations: map[string]string{"a": large, "b": large}},
	} {
		meta.Name, meta.Namespace = "name", "default"
		path := field.NewPath("metadata")
		answer := func(m metav1.Object) string {
			return validation.ValidateObjectMetaAccessor(m, true, validation.NameIsDNSSubdomain, path).ToAggregate().Error()
		}
		obj := &corev1.Pod{ObjectMeta: meta}
		obj.Namespace = "" // one error that validation must find in each case
		got, want := answer(metaOf(obj)), answer(obj)
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		if shown := metaOf(obj).GetLabels(); name == "valid" && shown != nil {
			t.Errorf("validation is shown valid labels: %v", shown)
		}
	}
}
