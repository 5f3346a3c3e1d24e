package structuralschema

import (
	"strings"

	pathvalidation "k8s.io/apimachinery/pkg/api/validate/content"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateEmbedded returns the errors in apiVersion, kind and metadata of the embedded resources in tree. path is
// the path of tree. The result does not depend on whether the object is created or updated.
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
	meta, err := (&metadataDecoder{}).decode(v, nil)
	if err != nil {
		return append(errs, field.Invalid(path.Child("metadata"), v, err.Error()))
	}
	if meta.Name == "" {
		meta.Name = "any" // a name is not required
	}
	return append(
		errs, metavalidation.ValidateObjectMeta(meta, meta.Namespace != "", pathSegment, path.Child("metadata"))...,
	)
}

// embeddedText checks that a required field is a string that is not empty. wrong returns the message of any other
// error in it, or "".
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
