package apiextensions

import (
	"encoding/json"
	"reflect"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/keelson-dev/keelson/registry"
)

// The reference stores definitions as v1beta1, which it has not served for long.
// There a definition has one validation, one set of subresources and one of
// columns at the top, and versions have their own only where they differ.

// shared are the members of a version that v1beta1 moves to the top where all
// versions have the same, with their names there.
var shared = []struct{ version, top string }{
	{"schema", "validation"},
	{"subresources", "subresources"},
	{"additionalPrinterColumns", "additionalPrinterColumns"},
	{"selectableFields", "selectableFields"},
}

type tree = map[string]any

// ToStored converts a definition to the version that is stored.
func ToStored(d *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1beta1.CustomResourceDefinition, error) {
	out := &apiextensionsv1beta1.CustomResourceDefinition{}
	err := convert(d, out, func(spec tree) {
		versions := versionsOf(spec)
		for _, v := range versions {
			renameColumns(v, "jsonPath", "JSONPath")
		}
		if len(versions) > 0 {
			spec["version"] = versions[0]["name"]
		}
		for _, member := range shared {
			if allSame(versions, member.version) {
				if value, there := versions[0][member.version]; there {
					spec[member.top] = value
				}
				for _, v := range versions {
					delete(v, member.version)
				}
			}
		}
		if _, there := spec["preserveUnknownFields"]; !there {
			spec["preserveUnknownFields"] = false
		}
		if c, ok := spec["conversion"].(tree); ok {
			if w, ok := c["webhook"].(tree); ok {
				delete(c, "webhook")
				move(w, "clientConfig", c, "webhookClientConfig")
				move(w, "conversionReviewVersions", c, "conversionReviewVersions")
			}
		}
	})
	if err != nil {
		return nil, err
	}
	out.SetGroupVersionKind(apiextensionsv1beta1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	return out, nil
}

// FromStored converts a stored definition.
func FromStored(d *apiextensionsv1beta1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	out := &apiextensionsv1.CustomResourceDefinition{}
	err := convert(d, out, func(spec tree) {
		versions := versionsOf(spec)
		if name, there := spec["version"]; there && len(versions) == 0 {
			versions = []tree{{"name": name, "served": true, "storage": true}}
			spec["versions"] = []any{versions[0]}
		}
		delete(spec, "version")
		for _, member := range shared {
			if value, there := spec[member.top]; there {
				delete(spec, member.top)
				for _, v := range versions {
					v[member.version] = value
				}
			}
		}
		for _, v := range versions {
			renameColumns(v, "JSONPath", "jsonPath")
		}
		// Left out it means true there, false here.
		switch preserve, there := spec["preserveUnknownFields"]; {
		case !there:
			spec["preserveUnknownFields"] = true
		case preserve == false:
			delete(spec, "preserveUnknownFields")
		}
		if c, ok := spec["conversion"].(tree); ok && c["strategy"] == string(apiextensionsv1.WebhookConverter) {
			w := tree{}
			move(c, "webhookClientConfig", w, "clientConfig")
			move(c, "conversionReviewVersions", w, "conversionReviewVersions")
			c["webhook"] = w
		} else if ok {
			delete(c, "webhookClientConfig")
			delete(c, "conversionReviewVersions")
		}
	})
	if err != nil {
		return nil, err
	}
	out.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	return out, nil
}

// encodeStored makes the stored document of a definition.
func encodeStored(obj registry.Object) ([]byte, error) {
	stored, err := ToStored(obj.(*definition))
	if err != nil {
		return nil, err
	}
	return json.Marshal(stored)
}

// decodeStored reads a stored document, of either version.
func decodeStored(document []byte) (registry.Object, error) {
	var head metav1.TypeMeta
	if err := json.Unmarshal(document, &head); err != nil {
		return nil, err
	}
	if head.APIVersion == apiextensionsv1.SchemeGroupVersion.String() {
		out := &definition{}
		return out, json.Unmarshal(document, out)
	}
	stored := &apiextensionsv1beta1.CustomResourceDefinition{}
	if err := json.Unmarshal(document, stored); err != nil {
		return nil, err
	}
	return FromStored(stored)
}

// convert copies in to out through JSON, whose names the versions share but for
// what change changes.
func convert(in, out any, change func(spec tree)) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	var spec tree
	// Whole numbers stay whole, however large.
	if err := utiljson.Unmarshal(members["spec"], &spec); err != nil {
		return err
	}
	change(spec)
	if members["spec"], err = json.Marshal(spec); err != nil {
		return err
	}
	if text, err = json.Marshal(members); err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

func versionsOf(spec tree) []tree {
	var out []tree
	list, _ := spec["versions"].([]any)
	for _, v := range list {
		if version, ok := v.(tree); ok {
			out = append(out, version)
		}
	}
	return out
}

func allSame(versions []tree, member string) bool {
	for i := range versions {
		if !reflect.DeepEqual(versions[i][member], versions[0][member]) {
			return false
		}
	}
	return len(versions) > 0
}

func renameColumns(version tree, from, to string) {
	columns, _ := version["additionalPrinterColumns"].([]any)
	for _, c := range columns {
		if column, ok := c.(tree); ok {
			move(column, from, column, to)
		}
	}
}

func move(from tree, name string, to tree, other string) {
	if value, there := from[name]; there {
		delete(from, name)
		to[other] = value
	}
}
