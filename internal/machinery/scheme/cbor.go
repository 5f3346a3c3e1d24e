package scheme

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	kjson "sigs.k8s.io/json"
)

// TypeCBOR is the media type of CBOR (RFC 8949), which the feature gate CBORServingAndStorage
// enables (KEP-4222). TypeCBORSequence is the media type of a stream of CBOR documents.
const (
	TypeCBOR         = "application/cbor"
	TypeCBORSequence = "application/cbor-seq"
)

// cborTag is the tag at the beginning of each CBOR document (RFC 8949 section 3.4.6).
var cborTag = []byte{0xd9, 0xd9, 0xf7}

// AppendCBOR appends v as a CBOR document with the tag. A typed object must have its
// apiVersion and kind set.
func AppendCBOR(b []byte, v any) ([]byte, error) {
	doc, err := direct.Marshal(v)
	if err != nil {
		return b, err
	}
	return append(append(b, cborTag...), doc...), nil
}

// JSONToCBOR converts a JSON document to CBOR. The document must not contain byte strings:
// they are text in JSON, but a type of their own in CBOR.
func JSONToCBOR(doc []byte) ([]byte, error) {
	var v any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, &v); err != nil {
		return nil, err
	}
	return AppendCBOR(nil, v)
}

// CBORToJSON converts a CBOR document to JSON.
func CBORToJSON(doc []byte) ([]byte, error) {
	var v any
	if err := direct.Unmarshal(doc, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// treeOfCBOR returns the custom resource in a decoded body. Duplicate keys have been refused
// before.
func (d Decoder) treeOfCBOR(
	gvk schema.GroupVersionKind, doc map[string]any, body []byte,
) (runtime.Object, []error, error) {
	shown, err := json.Marshal(doc)
	if err != nil {
		return nil, nil, d.unrecognized(body, err)
	}
	if err := d.checkTree(gvk, shown, body, true); err != nil {
		return nil, nil, err
	}
	tree := d.New().(*unstructured.Unstructured)
	tree.Object = doc
	return tree, nil, nil
}

// decodeCBOR decodes a CBOR body.
func (d Decoder) decodeCBOR(body []byte, strict bool) (runtime.Object, []error, error) {
	var doc map[string]any
	if err := direct.Unmarshal(body, &doc); err != nil {
		return nil, nil, d.unrecognized(body, err)
	}
	apiVersion, _ := doc["apiVersion"].(string)
	kind, _ := doc["kind"].(string)
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	if d.Tree {
		return d.treeOfCBOR(gvk, doc, body)
	}
	if err := d.checkKind(withDefaults(gvk, d.GVK)); err != nil {
		return nil, nil, err
	}
	if err := CheckQuantities(d.New(), doc); err != nil {
		return nil, nil, d.cannotHandle(d.GVK, err)
	}
	types := runtime.NewScheme()
	types.AddKnownTypeWithName(d.GVK, d.New())
	for _, gvk := range d.Also {
		types.AddKnownTypeWithName(gvk, d.New())
	}
	obj, _, err := cbor.NewSerializer(types, types, cbor.Strict(strict)).Decode(body, &d.GVK, nil)
	if found, ok := runtime.AsStrictDecodingError(err); ok && obj != nil {
		return obj, found.Errors(), nil
	}
	if err != nil {
		return nil, nil, d.cannotHandle(d.GVK, err)
	}
	return obj, nil, nil
}
