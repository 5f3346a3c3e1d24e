package declare

import (
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// Unchanged is Immutable for fields whose validation is declared in the API types: the error does not have the value.
func Unchanged(value, old any, path *field.Path) field.ErrorList {
	if equality.Semantic.DeepEqual(value, old) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, nil, "field is immutable")}
}
