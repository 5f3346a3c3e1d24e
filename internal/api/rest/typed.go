package rest

import (
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// typedRepresentation is the representation of kinds with a Go type.
type typedRepresentation struct{ s *served }

// typedPatchTypes are the JSON patch (RFC 6902), the merge patch (RFC 7386), the strategic merge patch and
// server-side apply (KEP-555). Error messages list them in this order.
var typedPatchTypes = []string{
	string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType),
	string(types.ApplyYAMLPatchType),
}

// unsupportedPatchType is the error of the router of kube-apiserver. It has a text of its own and does not list
// the accepted types.
var unsupportedPatchType = apierr.WithEmptyDetails(apierr.New(
	http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "415: Unsupported Media Type"))

func (t typedRepresentation) bodyKind(_ registry.Object) schema.GroupVersionKind {
	return t.s.GVK
}

func (typedRepresentation) patchTypes() []string { return typedPatchTypes }

// refusePatchType lists the accepted types if one of the types in the header is accepted; the header may be a
// list. The router of kube-apiserver lets only such requests pass, and refuses all others with another error.
func (typedRepresentation) refusePatchType(contentType string, accepted []string) error {
	for part := range strings.SplitSeq(contentType, ",") {
		mediaType, _, _ := strings.Cut(part, ";")
		if slices.Contains(accepted, strings.TrimSpace(mediaType)) {
			return apierr.UnsupportedMediaType(accepted)
		}
	}
	return unsupportedPatchType
}

func (typedRepresentation) scaleDecodeError(err error) error { return err }

func (typedRepresentation) endpoint(e negotiate.Endpoint) negotiate.Endpoint { return e }

func (typedRepresentation) checkFormat(negotiate.Accepted) error { return nil }

// goType returns, for example, *core.Pod: messages of kube-apiserver name its internal types.
func (t typedRepresentation) goType() string { return "*" + t.s.Kind.Package + "." + t.s.Kind.Name }

func (t typedRepresentation) notAList() error {
	return apierr.NotAcceptable(
		"you requested PartialObjectMetadataList, but the requested object is not a list (" + t.goType() + ")",
	)
}

func (typedRepresentation) encodeItem(obj registry.Object) ([]byte, error) {
	return scheme.EncodeItem(obj)
}

func (typedRepresentation) encodeProto(obj registry.Object) ([]byte, error) {
	return scheme.EncodeProto(obj)
}

func (t typedRepresentation) listHead(b []byte, p *page) []byte {
	return appendListHead(append(b, t.s.typedListHead...), p)
}

func (typedRepresentation) listTail(b []byte, _ *page) []byte { return append(b, "]}\n"...) }

func (typedRepresentation) metadataListTail(b []byte, _ *page) []byte { return append(b, "]}\n"...) }

// listedCBOR removes apiVersion and kind, which items of a list do not have.
func (typedRepresentation) listedCBOR(obj runtime.Object) {
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
}

func (typedRepresentation) scaleTable(*metav1.Table, int32) {}
