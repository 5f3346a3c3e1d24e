package rest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// representation has the differences that clients see between kinds with a Go type (typedRepresentation) and
// custom resources (unstructuredRepresentation): the formats of requests and responses, the frame of a list, and
// the texts of some errors. A resource gets one when it is bound.
type representation interface {
	// bodyKind returns the group, version and kind of a decoded body.
	bodyKind(obj registry.Object) schema.GroupVersionKind
	// patchTypes returns the accepted Content-Types of a PATCH, without CBOR.
	patchTypes() []string
	// refusePatchType returns the error of a PATCH with a Content-Type that is not accepted.
	refusePatchType(contentType string, accepted []string) error
	// scaleDecodeError returns the error of a body that is not a Scale.
	scaleDecodeError(err error) error

	// endpoint returns e with the formats that the kind has.
	endpoint(e negotiate.Endpoint) negotiate.Endpoint
	// checkFormat returns an error for a negotiated format that the kind does not support.
	checkFormat(accepted negotiate.Accepted) error
	// goType returns the name of the kind's Go type in kube-apiserver's messages.
	goType() string
	// notAList returns the error for a request of one object in the form of a list.
	notAList() error

	// encodeItem encodes an object that is not from the cache as its item JSON, and encodeProto as a message.
	encodeItem(obj registry.Object) ([]byte, error)
	encodeProto(obj registry.Object) ([]byte, error)
	// listHead appends the JSON of a list up to its first item, and listTail what follows the last one.
	listHead(b []byte, p *page) []byte
	listTail(b []byte, p *page) []byte
	// metadataListTail appends what follows the last item of a PartialObjectMetadataList.
	metadataListTail(b []byte, p *page) []byte
	// listedCBOR changes an object that becomes an item of a list in CBOR.
	listedCBOR(obj runtime.Object)
	// scaleTable adapts the table of a Scale.
	scaleTable(table *metav1.Table, replicas int32)
}
