package rest

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/scheme"
	"github.com/keelson-dev/keelson/write/patch"
)

// mergeTree applies a merge patch to a custom resource as it is decoded already. It
// says false, and leaves the patch to the document, where there is something to say
// about the patch or what it makes.
func (p *patcher) mergeTree(live, obj registry.Object) bool {
	before, ok := live.(*unstructured.Unstructured)
	if !ok || p.patch != types.MergePatchType {
		return false
	}
	changes, ok := scheme.ParseTree(p.body)
	if !ok || !keeps(before, changes, "apiVersion") || !keeps(before, changes, "kind") {
		return false
	}
	after := copyTree(before.Object)
	patch.MergeTree(after, changes)
	obj.(*unstructured.Unstructured).Object = after
	unknown, err := p.s.coerce(obj, p.validation != patch.Ignore)
	return err == nil && len(unknown) == 0
}

// keeps says that changes leave a member, which is text, as it is.
func keeps(before *unstructured.Unstructured, changes map[string]any, name string) bool {
	text, isText := before.Object[name].(string)
	v, named := changes[name]
	return isText && text != "" && (!named || v == text)
}

// copyTree copies a tree but for the entries of its managedFields, which nothing
// changes in place.
func copyTree(tree map[string]any) map[string]any {
	meta, ok := tree["metadata"].(map[string]any)
	entries, owned := meta["managedFields"]
	if !ok || !owned {
		return runtime.DeepCopyJSON(tree)
	}
	meta = maps.Clone(meta)
	delete(meta, "managedFields")
	tree = maps.Clone(tree)
	tree["metadata"] = meta
	tree = runtime.DeepCopyJSON(tree)
	tree["metadata"].(map[string]any)["managedFields"] = entries
	return tree
}
