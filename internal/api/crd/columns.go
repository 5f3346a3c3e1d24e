package crd

import (
	"bytes"
	"reflect"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/jsonpath"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

var scaleKind = schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}

// ageColumn is the column of a version that declares no printer columns.
var ageColumn = []apiextensionsv1.CustomResourceColumnDefinition{{
	Name: "Age", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
	JSONPath: ".metadata.creationTimestamp",
}}

// table declares the tables of a version with these printer columns. A column whose path cannot be parsed is left out; the writer of the
// definition was warned of it.
func table(declared []apiextensionsv1.CustomResourceColumnDefinition) registry.Table[registry.Object] {
	if len(declared) == 0 {
		declared = ageColumn
	}
	headers := []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]},
	}
	var paths []*jsonpath.JSONPath
	for _, c := range declared {
		path := jsonpath.New(c.Name).AllowMissingKeys(true)
		if path.Parse("{"+c.JSONPath+"}") != nil {
			continue
		}
		description := c.Description
		if description == "" {
			description = "Custom resource definition column (in JSONPath format): " + c.JSONPath
		}
		paths = append(paths, path)
		headers = append(
			headers,
			metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Format: c.Format, Description: description, Priority: c.Priority},
		)
	}
	cells := func(obj *unstructured.Unstructured) []any {
		cells := []any{obj.GetName()}
		for i, path := range paths {
			cells = append(cells, cell(path, headers[i+1].Type, obj.Object))
		}
		return cells
	}
	return registry.Table[*unstructured.Unstructured]{Columns: headers, Cells: cells}.Untyped()
}

// cell returns the value that the path finds in an object, converted to the type of the column. It returns nil if
// the path finds nothing, or a value of another type.
func cell(path *jsonpath.JSONPath, columnType string, tree map[string]any) any {
	found, err := path.FindResults(tree)
	if err != nil || len(found) == 0 || len(found[0]) == 0 {
		return nil
	}
	value := found[0][0].Interface()
	if columnType == "string" {
		var text bytes.Buffer
		if path.PrintResults(&text, []reflect.Value{reflect.ValueOf(value)}) != nil {
			return nil
		}
		return text.String()
	}
	switch v := value.(type) {
	case int64:
		switch columnType {
		case "integer":
			return v
		case "number":
			return float64(v)
		}
	case float64:
		switch columnType {
		case "integer":
			return int64(v)
		case "number":
			return v
		}
	case bool:
		if columnType == "boolean" {
			return v
		}
	case string:
		if columnType == "date" {
			return age(v)
		}
	}
	return nil
}

// age returns the time since an RFC 3339 time, as kubectl shows ages.
func age(text string) any {
	var t metav1.Time
	switch err := t.UnmarshalQueryParameter(text); {
	case err != nil:
		return "<invalid>"
	case t.IsZero():
		return "<unknown>"
	}
	return registry.Elapsed{Since: t.Time}
}
