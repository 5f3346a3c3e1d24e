package managedfields

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// ResetFields returns the fields that requests to a kind, or to one of its subresources, cannot set, by version; nil if
// there are none.
func ResetFields(k *registry.Kind, subresource string) map[fieldpath.APIVersion]*fieldpath.Set {
	all := resetIn(k, k.Resets(subresource))
	if len(all) > 0 && k.Unstructured() {
		// kube-apiserver has reset fields of the version of the request only. If managers applied a status in another
		// version, a new status conflicts with it, although it is not stored.
		own := fieldpath.APIVersion(schema.GroupVersion{Group: k.Group, Version: k.Storage.Version}.String())
		return map[fieldpath.APIVersion]*fieldpath.Set{own: all[own]}
	}
	return all
}

func resetIn(k *registry.Kind, paths []string) map[fieldpath.APIVersion]*fieldpath.Set {
	if len(paths) == 0 {
		return nil
	}
	set := fieldpath.NewSet()
	for _, path := range paths {
		var elements fieldpath.Path
		for name := range strings.SplitSeq(path, ".") {
			elements = append(elements, fieldpath.PathElement{FieldName: &name})
		}
		set.Insert(elements)
	}
	out := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, v := range k.Versions {
		gv := schema.GroupVersion{Group: k.Group, Version: v.Name}
		if v.Group != "" {
			gv.Group = v.Group
		}
		out[fieldpath.APIVersion(gv.String())] = set
	}
	return out
}
