package rest

import (
	"encoding/json"
	"net/http"
	"strconv"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// unstructuredRepresentation is the representation of custom resources. Their documents are stored and served whole,
// apiVersion and kind included; the members of a list come in the order of their names.
type unstructuredRepresentation struct{ s *served }

// unstructuredPatchTypes lack the strategic merge patch, which needs a Go type.
var unstructuredPatchTypes = []string{
	string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType),
}

// bodyKind returns what the body declares; its fields may be empty.
func (unstructuredRepresentation) bodyKind(obj registry.Object) schema.GroupVersionKind {
	tree := obj.(*unstructured.Unstructured)
	gv, err := schema.ParseGroupVersion(tree.GetAPIVersion())
	if err != nil {
		return schema.GroupVersionKind{Kind: tree.GetKind()}
	}
	return gv.WithKind(tree.GetKind())
}

func (unstructuredRepresentation) patchTypes() []string { return unstructuredPatchTypes }

func (unstructuredRepresentation) refusePatchType(_ string, accepted []string) error {
	return apierr.UnsupportedMediaType(accepted)
}

// scaleDecodeError replaces the error, as in kube-apiserver, which fails to name the kind in its message.
func (unstructuredRepresentation) scaleDecodeError(error) error {
	return kerrors.NewBadRequest(`no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"`)
}

func (unstructuredRepresentation) endpoint(e negotiate.Endpoint) negotiate.Endpoint {
	e.Unstructured = true
	return e
}

var errNoProto = apierr.NotAcceptable(
	"object *unstructured.Unstructured does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message",
)

func (unstructuredRepresentation) checkFormat(accepted negotiate.Accepted) error {
	if accepted.Media == scheme.Protobuf && accepted.As == negotiate.Plain {
		return errNoProto
	}
	return nil
}

func (unstructuredRepresentation) goType() string { return "*unstructured.Unstructured" }

func (unstructuredRepresentation) notAList() error {
	return apierr.New(http.StatusInternalServerError, "", "content is not a list")
}

func (unstructuredRepresentation) encodeItem(obj registry.Object) ([]byte, error) {
	return scheme.MarshalTree(obj)
}

// encodeProto encodes only the metadata: nothing else of a custom resource has a protobuf encoding.
func (unstructuredRepresentation) encodeProto(obj registry.Object) ([]byte, error) {
	return registry.PartialMetadata(obj)
}

func (r unstructuredRepresentation) listHead(b []byte, _ *page) []byte {
	version, _ := json.Marshal(r.s.GVK.GroupVersion().String()) // encoding a string cannot fail
	b = append(b, `{"apiVersion":`...)
	b = append(b, version...)
	return append(b, `,"items":[`...)
}

// listTail writes the member continue also if it is empty, as kube-apiserver does for lists of custom resources.
func (r unstructuredRepresentation) listTail(b []byte, p *page) []byte {
	kind, _ := json.Marshal(r.s.Kind.List()) // encoding a string cannot fail
	b = append(b, `],"kind":`...)
	b = append(b, kind...)
	b = append(b, `,"metadata":{"continue":"`...)
	b = append(append(b, p.next...), '"')
	if p.remaining > 0 {
		b = append(b, `,"remainingItemCount":`...)
		b = strconv.AppendInt(b, p.remaining, 10)
	}
	b = append(b, `,"resourceVersion":"`...)
	b = strconv.AppendInt(b, p.revision, 10)
	return append(b, "\"}}\n"...)
}

// metadataListTail sets items to null in a list without items, as kube-apiserver does.
func (unstructuredRepresentation) metadataListTail(b []byte, p *page) []byte {
	if p.isEmpty() {
		return append(b[:len(b)-1], "null}\n"...)
	}
	return append(b, "]}\n"...)
}

func (unstructuredRepresentation) listedCBOR(runtime.Object) {}

var unstructuredScaleColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]},
	{Name: "Desired", Type: "integer", Description: "Number of desired replicas"},
	{Name: "Available", Type: "integer", Description: "Number of actual replicas"},
	{Name: "Age", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]},
}

// scaleTable leaves the cell of zero replicas empty: kube-apiserver reads it from the JSON of the Scale, which has no
// such member then.
func (unstructuredRepresentation) scaleTable(table *metav1.Table, replicas int32) {
	table.ColumnDefinitions = unstructuredScaleColumns
	if replicas == 0 {
		table.Rows[0].Cells[1] = nil
	}
}
