package rest

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// noteSent adds the object in a request to its audit record.
func noteSent(r *http.Request, gvk schema.GroupVersionKind, obj registry.Object) {
	audit.From(r.Context()).SetRequestObject(obj, func() ([]byte, error) { return document(gvk, obj) })
}

// document encodes obj with apiVersion and kind, and leaves it as it is. A custom resource that declares a kind
// already has all of its document.
func document(gvk schema.GroupVersionKind, obj registry.Object) ([]byte, error) {
	if tree, ok := obj.(*unstructured.Unstructured); ok && tree.GetKind() != "" {
		return scheme.MarshalTree(tree)
	}
	kind := obj.GetObjectKind()
	defer kind.SetGroupVersionKind(kind.GroupVersionKind())
	item, err := scheme.EncodeItem(obj)
	if err != nil {
		return nil, err
	}
	return scheme.JSONObject(scheme.JSONHead(gvk), item), nil
}

// auditedOptions is the version in which kube-apiserver records DeleteOptions, whatever the client sent.
const auditedOptions = metav1.GroupName + "/__internal"

// noteDeleteOptions adds the options in a request to its audit record.
func noteDeleteOptions(r *http.Request, o *metav1.DeleteOptions) {
	audit.From(r.Context()).SetRequestObject(nil, func() ([]byte, error) {
		out := *o
		out.Kind, out.APIVersion = "DeleteOptions", auditedOptions
		return scheme.Marshal(&out)
	})
}

// notePatch adds the patch in a request to its audit record.
func notePatch(r *http.Request, kind types.PatchType, body []byte) {
	audit.From(r.Context()).SetRequestPatch(func() ([]byte, error) {
		if kind == types.ApplyYAMLPatchType {
			return scheme.YAMLToJSON(body)
		}
		return body, nil
	})
}
