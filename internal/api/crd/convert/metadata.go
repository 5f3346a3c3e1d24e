package convert

import (
	"fmt"
	"maps"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// restoreMetadata replaces the metadata of a converted object by that of the original, except labels and
// annotations, which a webhook may change. It does not change the original, but the result shares values with it.
func restoreMetadata(original, converted *unstructured.Unstructured) error {
	value, found := converted.Object["metadata"]
	if !found {
		return fmt.Errorf("missing metadata in converted object")
	}
	answered, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("invalid metadata of type %T in converted object", value)
	}
	metadata := map[string]any{}
	if value, found := original.Object["metadata"]; found {
		m, ok := value.(map[string]any)
		if !ok {
			return fmt.Errorf("invalid metadata of type %T in input object", value)
		}
		metadata = maps.Clone(m)
	}
	for _, name := range []string{"labels", "annotations"} {
		value, err := checkStrings(name, metadata[name], answered[name])
		if err != nil {
			return err
		}
		if value == nil {
			delete(metadata, name)
		} else {
			metadata[name] = value
		}
	}
	converted.Object["metadata"] = metadata
	return nil
}

// checkStrings returns the labels or annotations of a converted object, nil if it has none. It validates them only if
// the webhook changed them, so that stored objects stay readable.
func checkStrings(name string, before, after any) (any, error) {
	if after == nil {
		return nil, nil
	}
	answered, ok := after.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid metadata.%s of type %T in converted object", name, after)
	}
	had, ok := before.(map[string]any)
	if !ok && before != nil {
		return nil, fmt.Errorf("invalid metadata.%s of type %T in original object", name, before)
	}
	changed := len(had) != len(answered)
	values := make(map[string]string, len(answered))
	for key, value := range answered {
		text, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object", name, key, value)
		}
		values[key] = text
		if old, ok := had[key].(string); !ok || old != text {
			changed = true
		}
	}
	if !changed {
		return answered, nil
	}
	var errs field.ErrorList
	if name == "labels" {
		errs = metav1validation.ValidateLabels(values, field.NewPath("metadata", "labels"))
	} else {
		errs = apivalidation.ValidateAnnotations(values, field.NewPath("metadata", "annotation"))
	}
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return answered, nil
}
