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

	"github.com/keelson-dev/keelson/scheme"
)

const (
	reviewGroup = "apiextensions.k8s.io"
	reviewKind  = "ConversionReview"
)

// beginReview returns a ConversionReview up to its first object, and its uid. All that
// is put into it is known to need no escape in JSON.
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

// endReview closes it, with the empty response that kube-apiserver sends.
func endReview(body []byte) []byte {
	return append(body, `]},"response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}}`...)
}

// review is what is read of a webhook's answer.
type review struct {
	metav1.TypeMeta `json:",inline"`
	Response        *struct {
		UID              string            `json:"uid"`
		ConvertedObjects []json.RawMessage `json:"convertedObjects"`
		Result           metav1.Status     `json:"result"`
	} `json:"response"`
}

// readReview decodes an answer, which may also be a Status.
func readReview(text []byte) (*review, error) {
	var kind struct {
		metav1.TypeMeta `json:",inline"`
		Status          json.RawMessage `json:"status"`
	}
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

// check looks at the answer as a whole. That of version v1beta1 never had to say what
// it is or answers.
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

// A position tells in errors which object of an answer is meant: in those of an
// answer with one object only some kinds of error say so.
type position struct{ object, version, metadata string }

func place(i, of int) position {
	if of == 1 {
		return position{object: "returned invalid object", version: "returned invalid object at index 0", metadata: "returned invalid metadata"}
	}
	object := fmt.Sprintf("returned invalid converted object at index %d", i)
	return position{object: object, version: object, metadata: fmt.Sprintf("returned invalid metadata in object at index %d", i)}
}

// take reads one converted object. Its metadata are those of the original but for
// labels and annotations.
func take(original *unstructured.Unstructured, text []byte, to schema.GroupVersion, at position) (*unstructured.Unstructured, error) {
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
