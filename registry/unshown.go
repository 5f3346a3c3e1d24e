package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/scheme"
)

// AnnotationUnshown is in the metadata of an object whose fields cannot be encoded, and says why.
const AnnotationUnshown = "keelson.dev/cannot-be-shown"

// unshown makes the JSON of an object that cannot be encoded for the reason why: its metadata without
// managedFields, with an annotation that says so. Readers see that something is missing, lists and watches
// of other objects go on, and the object can be deleted. In protobuf it is served as it is stored.
func (r *Resource) unshown(ctx context.Context, o *cache.Object, v *Version, why error) ([]byte, error) {
	obj, err := r.decodeAs(ctx, o, v)
	if err != nil {
		return nil, err
	}
	annotations := map[string]string{AnnotationUnshown: why.Error()}
	for name, value := range obj.GetAnnotations() {
		annotations[name] = value
	}
	var shown struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	shown.Metadata = metav1.ObjectMeta{
		Name: obj.GetName(), GenerateName: obj.GetGenerateName(), Namespace: obj.GetNamespace(),
		UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(), Generation: obj.GetGeneration(),
		CreationTimestamp: obj.GetCreationTimestamp(), DeletionTimestamp: obj.GetDeletionTimestamp(),
		DeletionGracePeriodSeconds: obj.GetDeletionGracePeriodSeconds(), Labels: obj.GetLabels(), Annotations: annotations,
		OwnerReferences: obj.GetOwnerReferences(), Finalizers: obj.GetFinalizers(),
	}
	return scheme.Marshal(&shown)
}
