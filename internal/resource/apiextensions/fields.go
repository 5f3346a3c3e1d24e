package apiextensions

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/keelson-dev/keelson/internal/object/structuralschema"
	"github.com/keelson-dev/keelson/internal/object/structuralschema/celrules"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

var (
	columnTypes   = []string{"boolean", "date", "integer", "number", "string"}
	columnFormats = []string{"byte", "date", "date-time", "double", "float", "int32", "int64", "password"}
)

// maxSelectableFields is how many selectable fields a version may have.
// The fields are those of KEP-4358. A definition that has more keeps them as long as the list does not change.
const maxSelectableFields = 8

// checkColumn validates a printer column. The types are the scalar types of OpenAPI, and date, whose values are
// shown as ages. Error messages name the field JSONPath: kube-apiserver validates its internal version, where
// jsonPath has this name.
func (c *specChecker) checkColumn(column *apiextensionsv1.CustomResourceColumnDefinition, path *field.Path) {
	c.add(field.RequiredIf(column.Name == "", path.Child("name"), ""))
	oneOf := "must be one of " + strings.Join(columnTypes, ",")
	if column.Type == "" {
		c.required(path.Child("type"), oneOf)
	} else if !slices.Contains(columnTypes, column.Type) {
		c.invalid(path.Child("type"), column.Type, oneOf)
	}
	if column.Format != "" && !slices.Contains(columnFormats, column.Format) {
		c.invalid(path.Child("format"), column.Format, "must be one of "+strings.Join(columnFormats, ","))
	}
	if column.JSONPath == "" {
		c.required(path.Child("JSONPath"), "")
	} else {
		c.checkSimplePath(column.JSONPath, path.Child("JSONPath"))
	}
}

// checkSimplePath reports whether a path has the format that columns and the scale subresource
// need.
// The text must not be empty. The rest of the path is not parsed here: a column whose path cannot be parsed only
// gets a warning, see unreadableColumns.
func (c *specChecker) checkSimplePath(text string, path *field.Path) bool {
	if text[0] == '.' {
		return true
	}
	c.invalid(path, text, "must be a simple json path starting with .")
	return false
}

func hasStatus(s *apiextensionsv1.CustomResourceSubresources) bool {
	return s != nil && s.Status != nil
}

// checkSubresources validates the paths of the scale subresource. The wanted number of replicas has to be in
// .spec and the current one in .status, as in the Scale that is made of them. For example .spec.replicas is
// accepted, .specs.replicas and .spec are not.
func (c *specChecker) checkSubresources(s *apiextensionsv1.CustomResourceSubresources, path *field.Path) {
	if s == nil || s.Scale == nil {
		return
	}
	scalePath := func(text string, at *field.Path, required bool, where string, prefixes ...string) {
		switch {
		case text == "" && required:
			c.required(at, "")
		case text == "" || !c.checkSimplePath(text, at):
		case !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(text, p) }):
			c.invalid(at, text, "should be a json path under "+where)
		}
	}
	scalePath(s.Scale.SpecReplicasPath, path.Child("scale.specReplicasPath"), true, ".spec", ".spec.")
	scalePath(s.Scale.StatusReplicasPath, path.Child("scale.statusReplicasPath"), true, ".status", ".status.")
	if selector := s.Scale.LabelSelectorPath; selector != nil {
		scalePath(*selector, path.Child("scale.labelSelectorPath"), false, "either .spec or .status", ".spec.", ".status.")
	}
}

// checkSelectable validates the selectable fields of a version, or those of all versions.
// parent is their path; name identifies them in error messages.
func (c *specChecker) checkSelectable(
	fields []apiextensionsv1.SelectableField, s *props, name string, parent *field.Path,
) {
	path := parent.Child("selectableFields")
	var schema *structuralschema.Schema
	if s != nil {
		if why := unsupported(s); why != "" {
			c.invalid(parent.Child("schema.openAPIV3Schema"), "", why)
		} else {
			schema = fieldTypes(s)
		}
	}
	var seen []string
	for i, f := range fields {
		at := path.Index(i).Child("jsonPath")
		if f.JSONPath == "" {
			c.required(at, "")
			continue
		}
		found, leaf, err := celrules.FieldPath(schema, f.JSONPath, false)
		if err != nil {
			c.invalid(at, f.JSONPath, fmt.Sprintf("is an invalid path: %v", err))
			continue
		}
		c.add(field.InvalidIf(found.Root().String() == "metadata", at, f.JSONPath,
			"must not point to fields in metadata"))
		c.add(field.InvalidIf(leaf == nil || !slices.Contains([]string{"string", "boolean", "integer"}, leaf.Type), at,
			f.JSONPath,
			"must point to a field of type string, boolean or integer. Enum string fields and strings with formats "+"are allowed."))
		// The parsed paths are compared, so two spellings of one path are duplicates. Duplicates do not count
		// towards the limit below.
		if slices.Contains(seen, found.String()) {
			c.add(field.ErrorList{field.Duplicate(at, f.JSONPath)})
		} else {
			seen = append(seen, found.String())
		}
	}
	if len(seen) > maxSelectableFields && !c.previous.hasSelectable(name, fields) {
		c.add(field.MaxItems(path, len(seen), maxSelectableFields))
	}
}
