package structural

import (
	"strings"

	pathvalidation "k8s.io/apimachinery/pkg/api/validate/content"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateEmbedded returns what is wrong with apiVersion, kind and metadata of the
// embedded resources in tree, which is at a path. It is the same on create and on
// update.
func (s *Schema) ValidateEmbedded(path *field.Path, tree any) field.ErrorList {
	if s == nil || s.below&hasEmbedded == 0 {
		return nil
	}
	switch x := tree.(type) {
	case map[string]any:
		var errs field.ErrorList
		if s.EmbeddedResource {
			errs = embeddedResource(path, x)
		}
		for _, name := range sortedKeys(x) {
			if sub := s.Properties[name]; sub != nil {
				errs = append(errs, sub.ValidateEmbedded(path.Child(name), x[name])...)
			} else if s.AdditionalProperties != nil {
				errs = append(errs, s.AdditionalProperties.ValidateEmbedded(path.Key(name), x[name])...)
			}
		}
		return errs
	case []any:
		var errs field.ErrorList
		for i, v := range x {
			errs = append(errs, s.Items.ValidateEmbedded(path.Index(i), v)...)
		}
		return errs
	}
	return nil
}

func embeddedResource(path *field.Path, x map[string]any) field.ErrorList {
	errs := embeddedText(path, x, "apiVersion", func(apiVersion string) string {
		if _, err := schema.ParseGroupVersion(apiVersion); err != nil {
			return err.Error()
		}
		return ""
	})
	errs = append(errs, embeddedText(path, x, "kind", func(kind string) string {
		if wrong := validation.IsDNS1035Label(strings.ToLower(kind)); len(wrong) > 0 {
			return "may have mixed case, but should otherwise match: " + strings.Join(wrong, ",")
		}
		return ""
	})...)
	v, found := x["metadata"]
	if !found {
		return errs
	}
	meta, err := (&decoding{}).decode(v, nil)
	if err != nil {
		return append(errs, field.Invalid(path.Child("metadata"), v, err.Error()))
	}
	if meta.Name == "" {
		meta.Name = "any" // a name is not required
	}
	return append(errs, metavalidation.ValidateObjectMeta(meta, meta.Namespace != "", pathSegment, path.Child("metadata"))...)
}

// embeddedText checks a field that must be there, a string, and not empty; wrong
// tells what else is wrong with it.
func embeddedText(path *field.Path, x map[string]any, name string, wrong func(string) string) field.ErrorList {
	v, found := x[name]
	if !found {
		return field.ErrorList{field.Required(path.Child(name), "")}
	}
	text, ok := v.(string)
	message := ""
	switch {
	case !ok:
		message = "must be a string"
	case text == "":
		message = "must not be empty"
	default:
		message = wrong(text)
	}
	if message == "" {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child(name), v, message)}
}

func pathSegment(name string, prefix bool) []string {
	if prefix {
		return pathvalidation.IsPathSegmentPrefix(name)
	}
	return pathvalidation.IsPathSegmentName(name)
}
