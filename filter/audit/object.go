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

	"github.com/keelson-dev/keelson/apiresponse"
	"github.com/keelson-dev/keelson/scheme"
	"github.com/keelson-dev/keelson/scheme/wire"
)

var (
	errNoObject = errors.New("the answer is no object")
	errNoType   = errors.New("the kind has no type")
)

// isObject says whether an answer is of a media type that objects have.
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

// objectJSON returns the object of an answer as JSON.
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
		return nil, errNoObject
	}
	return body, nil
}

// protoJSON returns the object in a protobuf envelope as JSON.
func (a *Auditor) protoJSON(body []byte) ([]byte, error) {
	envelope, err := wire.OpenEnvelope(body)
	if err != nil {
		return nil, err
	}
	gvk := schema.FromAPIVersionAndKind(string(envelope.APIVersion), string(envelope.Kind))
	head := scheme.JSONHead(gvk)
	if item, err := a.itemJSON(gvk, envelope.Raw); !errors.Is(err, errNoType) {
		return scheme.JSONObject(head, item), err
	}
	kind, isList := strings.CutSuffix(gvk.Kind, "List")
	if !isList {
		return nil, fmt.Errorf("%s: %w", gvk, errNoType)
	}
	return a.listJSON(head, gvk.GroupVersion().WithKind(kind), envelope.Raw)
}

// itemJSON returns an object of that kind as JSON, without apiVersion and kind.
func (a *Auditor) itemJSON(gvk schema.GroupVersionKind, raw []byte) ([]byte, error) {
	obj := a.New(gvk)
	if obj == nil {
		return nil, errNoType
	}
	if err := scheme.DecodeProto(raw, obj); err != nil {
		return nil, err
	}
	return scheme.EncodeItem(obj)
}

// The fields of every list (k8s.io/api, generated.proto of each group).
const (
	listMetadata = 1
	listItems    = 2
)

// listJSON returns a list of objects of one kind as JSON.
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
			return nil, errNoObject
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
