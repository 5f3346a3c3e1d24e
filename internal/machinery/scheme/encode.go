// Package scheme encodes and decodes objects: JSON, YAML, CBOR and the protobuf envelope. Errors have
// kube-apiserver's messages.
package scheme

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/structjson"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// Object is a decoded object of a resource.
type Object interface {
	metav1.Object
	runtime.Object
}

// ProtoMessage is implemented by typed API structs.
type ProtoMessage interface {
	Size() int
	MarshalToSizedBuffer(data []byte) (int, error)
	Unmarshal(data []byte) error
	Reset()
}

// JSONHead returns the beginning of a JSON object of one kind, up to and including the comma
// before the member that follows apiVersion and kind.
func JSONHead(gvk schema.GroupVersionKind) []byte {
	kind, _ := json.Marshal(gvk.Kind)
	version, _ := json.Marshal(gvk.GroupVersion().String())
	return fmt.Appendf(nil, `{"kind":%s,"apiVersion":%s,`, kind, version)
}

// EncodeItem encodes obj as JSON without apiVersion and kind, as for an item of a list. It
// clears the TypeMeta of a typed object.
func EncodeItem(obj runtime.Object) ([]byte, error) {
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return Marshal(obj)
}

// AppendItemOfProto appends the JSON of an object whose protobuf message is raw and whose struct type is t. The
// result is the same as that of DecodeProto and EncodeItem, but no struct is made. If that is not possible, ok is
// false and nothing is appended.
func AppendItemOfProto(b, raw []byte, t reflect.Type) (_ []byte, ok bool) {
	return structjson.AppendMessage(b, raw, t)
}

// ItemOfProto returns the result of AppendItemOfProto in a slice without unused capacity, so that it can be
// cached.
func ItemOfProto(raw []byte, t reflect.Type) (item []byte, ok bool) {
	item, _ = encoded(func(b []byte) ([]byte, error) {
		b, ok = AppendItemOfProto(b, raw, t)
		return b, nil
	})
	return item, ok
}

// AppendStoredItem appends the JSON that EncodeItem will return for obj after obj was stored and read again, that
// is, encoded as protobuf and decoded. It does not change obj.
func AppendStoredItem(b []byte, obj runtime.Object) ([]byte, error) {
	return structjson.AppendStored(b, obj)
}

// encoding has buffers for encoding JSON, with a capacity of at most maxEncoding bytes.
var encoding = sync.Pool{New: func() any { return new([]byte) }}

const maxEncoding = 256 << 10

// encoded returns the bytes that f appends, without unused capacity, because they may be
// cached.
func encoded(f func(b []byte) ([]byte, error)) ([]byte, error) {
	buf := encoding.Get().(*[]byte)
	defer encoding.Put(buf)
	b, err := f((*buf)[:0])
	if cap(b) <= maxEncoding {
		*buf = b
	}
	if err != nil {
		return nil, err
	}
	return bytes.Clone(b), nil
}

// Marshal encodes v like kube-apiserver: with HTML characters escaped and without a newline at
// the end.
func Marshal(v any) ([]byte, error) {
	if value := reflect.ValueOf(v); value.Kind() == reflect.Pointer && !value.IsNil() &&
		value.Elem().Kind() == reflect.Struct {
		return encoded(func(b []byte) ([]byte, error) { return structjson.Append(b, v) })
	}
	return json.Marshal(v)
}

// JSONObject returns the JSON document of an item: head has apiVersion and kind. It ends with
// a newline.
func JSONObject(head, item []byte) []byte {
	out := make([]byte, 0, len(head)+len(item)+1)
	return append(AppendJSONObject(out, head, item), '\n')
}

// AppendJSONObject appends the JSON document of an item: head has apiVersion and kind.
func AppendJSONObject(b, head, item []byte) []byte {
	b = append(b, head...)
	if rest := item[1:]; !bytes.Equal(rest, []byte("}")) {
		return append(b, rest...)
	}
	return append(b[:len(b)-1], '}')
}

// EncodeProto encodes obj as a protobuf message without envelope.
func EncodeProto(obj runtime.Object) ([]byte, error) {
	m, ok := obj.(ProtoMessage)
	if !ok {
		return nil, fmt.Errorf("%T has no protobuf encoding", obj)
	}
	size := m.Size()
	buf := make([]byte, size)
	n, err := m.MarshalToSizedBuffer(buf)
	if err != nil {
		return nil, err
	}
	return buf[size-n:], nil
}

// EncodeEnvelope encodes obj as a protobuf message in an envelope that begins with head.
func EncodeEnvelope(head wire.EnvelopeHead, obj runtime.Object) ([]byte, error) {
	m, ok := obj.(ProtoMessage)
	if !ok {
		return nil, fmt.Errorf("%T has no protobuf encoding", obj)
	}
	size := m.Size()
	buf := head.AppendOpen(make([]byte, 0, head.Size(size)), size)
	start := len(buf)
	buf = buf[:start+size]
	n, err := m.MarshalToSizedBuffer(buf[start:])
	if err != nil {
		return nil, err
	}
	if n != size {
		return nil, fmt.Errorf("%T: encoded %d bytes, announced %d", obj, n, size)
	}
	return head.AppendClose(buf), nil
}

// DecodeProto decodes a protobuf message without envelope into obj.
func DecodeProto(raw []byte, obj runtime.Object) error {
	m, ok := obj.(ProtoMessage)
	if !ok {
		return fmt.Errorf("%T has no protobuf encoding", obj)
	}
	return m.Unmarshal(raw)
}
