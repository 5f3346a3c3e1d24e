package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzip"
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

var (
	errNotObject   = errors.New("the response is not an object")
	errUnknownKind = errors.New("the kind is unknown")
)

// isObject reports whether the response has one of the media types of API objects.
func isObject(h http.Header) bool {
	switch mediaType(h) {
	case apiresponse.JSON, apiresponse.YAML, apiresponse.Protobuf, scheme.TypeCBOR:
		return true
	}
	return false
}

func mediaType(h http.Header) string {
	name, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return name
}

// objectJSON converts a response body to JSON. It returns errNotObject if the body is not an
// API object.
func (a *Auditor) objectJSON(h http.Header, body []byte) ([]byte, error) {
	if h.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		if body, err = io.ReadAll(z); err != nil {
			return nil, err
		}
	}
	var err error
	switch mediaType(h) {
	case apiresponse.YAML:
		body, err = scheme.YAMLToJSON(body)
	case scheme.TypeCBOR:
		body, err = scheme.CBORToJSON(body)
	case apiresponse.Protobuf:
		body, err = a.protoJSON(body)
	}
	if err != nil {
		return nil, err
	}
	if _, kind, err := wire.KindOf(body); err != nil || len(kind) == 0 {
		return nil, errNotObject
	}
	return body, nil
}

// protoJSON converts a protobuf envelope to the JSON of its object or list.
func (a *Auditor) protoJSON(body []byte) ([]byte, error) {
	envelope, err := wire.OpenEnvelope(body)
	if err != nil {
		return nil, err
	}
	gvk := schema.FromAPIVersionAndKind(string(envelope.APIVersion), string(envelope.Kind))
	head := scheme.JSONHead(gvk)
	if item, err := a.itemJSON(gvk, envelope.Raw); !errors.Is(err, errUnknownKind) {
		return scheme.JSONObject(head, item), err
	}
	kind, isList := strings.CutSuffix(gvk.Kind, "List")
	if !isList {
		return nil, fmt.Errorf("%s: %w", gvk, errUnknownKind)
	}
	return a.listJSON(head, gvk.GroupVersion().WithKind(kind), envelope.Raw)
}

// itemJSON converts one protobuf object of kind gvk to JSON without apiVersion and kind. It
// returns errUnknownKind for an unknown kind.
func (a *Auditor) itemJSON(gvk schema.GroupVersionKind, raw []byte) ([]byte, error) {
	obj := a.NewObject(gvk)
	if obj == nil {
		return nil, errUnknownKind
	}
	if err := scheme.DecodeProto(raw, obj); err != nil {
		return nil, err
	}
	return scheme.EncodeItem(obj)
}

// The protobuf field numbers that all lists have (k8s.io/api, generated.proto of each group).
const (
	listMetadata = 1
	listItems    = 2
)

// listJSON converts a protobuf list to JSON. head is the beginning of the JSON object, with
// apiVersion and kind; item is the kind of the items.
func (a *Auditor) listJSON(head []byte, item schema.GroupVersionKind, raw []byte) ([]byte, error) {
	var meta metav1.ListMeta
	var items []byte
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		raw = raw[n:]
		if kind != protowire.BytesType {
			return nil, errNotObject
		}
		value, n := protowire.ConsumeBytes(raw)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		raw = raw[n:]
		switch number {
		case listMetadata:
			if err := meta.Unmarshal(value); err != nil {
				return nil, err
			}
		case listItems:
			doc, err := a.itemJSON(item, value)
			if err != nil {
				return nil, err
			}
			if items != nil {
				items = append(items, ',')
			}
			items = append(items, doc...)
		}
	}
	metadata, err := scheme.Marshal(meta)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `%s"metadata":%s,"items":[%s]}`, head, metadata, items), nil
}
