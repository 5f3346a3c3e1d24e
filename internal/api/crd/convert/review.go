package convert

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

const (
	reviewGroup = "apiextensions.k8s.io"
	reviewKind  = "ConversionReview"
)

// beginReview returns the uid and the encoding of a ConversionReview up to its first object. The arguments contain
// no characters that need escaping in JSON.
func beginReview(version string, to schema.GroupVersion) (uid string, body []byte) {
	uid = string(uuid.NewUUID())
	return uid, fmt.Appendf(nil, `{"kind":%q,"apiVersion":"%s/%s","request":{"uid":%q,"desiredAPIVersion":%q,"objects":[`,
		reviewKind, reviewGroup, version, uid, to.String())
}

func appendObject(body []byte, before int, obj *unstructured.Unstructured) ([]byte, error) {
	if before > 0 {
		body = append(body, ',')
	}
	text, err := scheme.MarshalTree(obj)
	return append(body, text...), err
}

// endReview completes the encoding, with the empty response that kube-apiserver sends.
func endReview(body []byte) []byte {
	return append(body, `]},"response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}}`...)
}

// review is the decoded part of a webhook's response.
type review struct {
	metav1.TypeMeta `json:",inline"`
	Response        *struct {
		UID              string            `json:"uid"`
		ConvertedObjects []json.RawMessage `json:"convertedObjects"`
		Result           metav1.Status     `json:"result"`
	} `json:"response"`
}

// readReview decodes a response. If it is a Status, readReview returns its message as an error.
func readReview(text []byte) (*review, error) {
	var kind metav1.TypeMeta
	if err := scheme.UnmarshalTree(text, &kind); err != nil {
		return nil, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	switch gvk := kind.GroupVersionKind(); {
	case gvk.Kind == "Status" && gvk.Version == "v1":
		return nil, statusError(text)
	case gvk.Kind != "" && gvk.Kind != reviewKind, gvk.Group != "" && gvk.Group != reviewGroup:
		return nil, fmt.Errorf("no kind %q is registered for version %q", gvk.Kind, gvk.GroupVersion())
	}
	r := &review{}
	return r, scheme.UnmarshalTree(text, r)
}

func statusError(text []byte) error {
	var status metav1.Status
	if err := scheme.UnmarshalTree(text, &status); err != nil {
		return err
	}
	if status.Status != metav1.StatusFailure || status.Message == "" {
		return errors.New("the answer is a Status")
	}
	return errors.New(status.Message)
}

// check checks a response as a whole. Only responses of version v1 must repeat kind and uid.
func (r *review) check(version, uid string) error {
	want := schema.GroupVersionKind{Group: reviewGroup, Version: version, Kind: reviewKind}
	if got := r.GroupVersionKind(); version == "v1" && got != want {
		return fmt.Errorf("expected webhook response of %v, got %v", want, got)
	}
	if r.Response == nil {
		return errors.New("no response provided")
	}
	if version == "v1" && r.Response.UID != uid {
		return fmt.Errorf("expected response.uid=%q, got %q", uid, r.Response.UID)
	}
	switch result := r.Response.Result; {
	case result.Status == metav1.StatusSuccess:
		return nil
	case result.Message != "":
		return errors.New(result.Message)
	default:
		return fmt.Errorf("response.result.status was '%s', not 'Success'", result.Status)
	}
}

// errorTexts has the beginnings of error messages about one object of a response. Some of them contain the index
// of the object, depending on whether the response has more than one object.
type errorTexts struct{ object, version, metadata string }

func errorTextsOf(i, of int) errorTexts {
	if of == 1 {
		return errorTexts{
			object: "returned invalid object", version: "returned invalid object at index 0",
			metadata: "returned invalid metadata",
		}
	}
	object := fmt.Sprintf("returned invalid converted object at index %d", i)
	return errorTexts{
		object: object, version: object, metadata: fmt.Sprintf("returned invalid metadata in object at index %d", i),
	}
}

// decodeConverted decodes and checks one converted object. Its metadata become those of the original, except labels
// and annotations.
func decodeConverted(
	original *unstructured.Unstructured, text []byte, to schema.GroupVersion, at errorTexts,
) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	if err := scheme.UnmarshalTree(text, &obj.Object); err != nil {
		return nil, fmt.Errorf("%s: %w", at.version, err)
	}
	if obj.GetKind() == "" {
		return nil, fmt.Errorf("%s: %w", at.version, runtime.NewMissingKindErr(string(text)))
	}
	if got := obj.GroupVersionKind().GroupVersion(); got != to {
		return nil, fmt.Errorf("%s: invalid groupVersion (expected %v, received %v)", at.version, to, got)
	}
	if want, got := original.GetKind(), obj.GetKind(); want != got {
		return nil, fmt.Errorf("%s: invalid kind (expected %v, received %v)", at.version, want, got)
	}
	for _, must := range []struct{ be, want, got string }{
		{"name", original.GetName(), obj.GetName()},
		{"namespace", original.GetNamespace(), obj.GetNamespace()},
		{"UID", string(original.GetUID()), string(obj.GetUID())},
	} {
		if must.want != must.got {
			return nil, fmt.Errorf("%s: must have the same %s: %v != %v", at.object, must.be, must.want, must.got)
		}
	}
	if err := restoreMetadata(original, obj); err != nil {
		return nil, fmt.Errorf("%s: %w", at.metadata, err)
	}
	return obj, nil
}
