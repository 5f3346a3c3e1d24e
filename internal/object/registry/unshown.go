package registry

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// AnnotationUnshown is in the metadata of an object whose fields cannot be encoded; its value is the reason.
const AnnotationUnshown = "keelson.dev/cannot-be-shown"

// unshowableError is the error of an object that was decoded and cannot be encoded as JSON. A server that checked less
// may have stored it.
type unshowableError struct {
	obj Object
	err error
}

func (u *unshowableError) Error() string { return u.err.Error() }

func (u *unshowableError) Unwrap() error { return u.err }

// item returns the JSON that replaces the object: its metadata without managedFields and with the annotation. So
// clients see that something is missing, lists and watches of other objects work, and the object can be deleted. In
// protobuf it is served as it is stored.
func (u *unshowableError) item() ([]byte, error) {
	obj := u.obj
	annotations := map[string]string{AnnotationUnshown: u.err.Error()}
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
