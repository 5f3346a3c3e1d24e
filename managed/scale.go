package managed

import (
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/keelson-dev/keelson/registry"
)

// ForScale returns the Manager of every scale subresource: its objects are
// autoscaling/v1 Scale whatever they scale. types knows that kind (typed.Converter
// does).
func ForScale(types managedfields.TypeConverter, cache *Cache) (*Manager, error) {
	kind := autoscalingv1.SchemeGroupVersion.WithKind("Scale")
	return New(Config{
		Kind: kind, Subresource: "scale", Storage: kind.GroupVersion(), Types: types, Cache: cache,
		Versions: []Version{{GroupVersion: kind.GroupVersion(), New: func() registry.Object { return &autoscalingv1.Scale{} }}},
	})
}

// A ScaleOwner translates between the managedFields of an object and those of its
// Scale: who owns the number of replicas of one owns that of the other.
type ScaleOwner struct{ handler *managedfields.ScaleHandler }

// NewScaleOwner takes the entries of the object, the version of the request, and
// where each version of the object has its replicas (".spec.replicas"); "" for a
// version without scale. Entries of versions that are not in paths are dropped.
func NewScaleOwner(entries []metav1.ManagedFieldsEntry, version schema.GroupVersion, paths map[schema.GroupVersion]string) ScaleOwner {
	mappings := managedfields.ResourcePathMappings{}
	for gv, path := range paths {
		mappings[gv.String()] = nil
		if path == "" {
			continue
		}
		var steps fieldpath.Path
		for name := range strings.SplitSeq(strings.TrimPrefix(path, "."), ".") {
			steps = append(steps, fieldpath.PathElement{FieldName: &name})
		}
		mappings[gv.String()] = steps
	}
	return ScaleOwner{managedfields.NewScaleHandler(entries, version, mappings)}
}

// Scale returns the entries of the Scale.
func (s ScaleOwner) Scale() ([]metav1.ManagedFieldsEntry, error) { return s.handler.ToSubresource() }

// Object returns the entries of the object after its Scale got these.
func (s ScaleOwner) Object(scale []metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, error) {
	return s.handler.ToParent(scale)
}
