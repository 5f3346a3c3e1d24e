package registry

import (
	"bytes"
	"context"
	"reflect"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// protobufEncoding stores Go types as protobuf messages in kube-apiserver's envelope. Data is the bare message.
type protobufEncoding struct {
	typed
	indexes []*Field
	// envelope surrounds the message in a stored value.
	envelope wire.EnvelopeHead
	goType   reflect.Type // of the message
}

func newProtobufEncoding(k *Kind, storage *Version, decodes *atomic.Int64) *protobufEncoding {
	return &protobufEncoding{
		typed: typed{k, storage, decodes}, indexes: k.Selection.indexed(),
		envelope: wire.NewEnvelopeHead(k.StoredVersion(), k.Name), goType: reflect.TypeOf(storage.New()).Elem(),
	}
}

func (e *protobufEncoding) read(value []byte, revision int64) (cache.Header, error) {
	var h cache.Header
	message, err := e.unstamped(value)
	if err != nil {
		return h, err
	}
	if h.Data, err = wire.Stamp(message, revision); err != nil {
		return h, err
	}
	meta, err := wire.Metadata(h.Data)
	if err != nil {
		return h, err
	}
	err = wire.EachLabel(meta, func(k, v []byte) {
		h.Labels = append(h.Labels, cache.Label{Key: intern(k), Value: intern(v)})
	})
	for _, f := range e.indexes {
		h.Fields = append(h.Fields, fieldText(f, h.Data))
	}
	return h, err
}

func (e *protobufEncoding) unstamped(value []byte) ([]byte, error) {
	message, err := wire.Raw(value)
	if err == nil && !bytes.HasPrefix(value, e.envelope) {
		message, err = e.ofOtherVersion(value, message)
	}
	if err == nil && e.lacksDefaults(message) {
		return e.withDefaults(message)
	}
	return message, err
}

// ofOtherVersion converts a value that was stored in another version to a message in the storage version. A server
// of an older release, or one that had to be compatible with it, may have stored it. message is the message in
// value.
func (e *protobufEncoding) ofOtherVersion(value, message []byte) ([]byte, error) {
	envelope, err := scheme.OpenBody(value)
	if err != nil {
		return nil, err
	}
	for i := range e.kind.Versions {
		v := &e.kind.Versions[i]
		if v.ToStorage == nil || e.kind.GroupVersion(v).String() != envelope.APIVersion {
			continue
		}
		obj := v.New()
		if err := scheme.DecodeProto(message, obj); err != nil {
			return nil, err
		}
		if obj, err = v.ToStorage(context.Background(), obj); err != nil {
			return nil, err
		}
		return scheme.EncodeProto(obj)
	}
	return message, nil
}

// lacksDefaults reports whether a field of Storage.DefaultOnRead is missing.
func (e *protobufEncoding) lacksDefaults(message []byte) bool {
	for _, path := range e.kind.Storage.DefaultOnRead {
		if v, err := wire.Find(message, path); err == nil && (!v.Found || v.Bytes != nil && len(v.Bytes) == 0) {
			return true
		}
	}
	return false
}

func (e *protobufEncoding) withDefaults(message []byte) ([]byte, error) {
	obj, err := e.decodeAsWritten(message)
	if err != nil {
		return nil, err
	}
	if e.storage.Default != nil { // a part that an older release did not store needs none
		e.storage.Default(obj)
	}
	return scheme.EncodeProto(obj)
}

func (e *protobufEncoding) restamp(data []byte, revision int64) ([]byte, error) {
	return wire.Stamp(data, revision)
}

func (e *protobufEncoding) encode(_ context.Context, obj Object) ([]byte, error) {
	return scheme.EncodeEnvelope(e.envelope, obj)
}

func (e *protobufEncoding) preview(_ context.Context, b []byte, obj Object, value []byte) ([]byte, error) {
	message, err := wire.Raw(value)
	if err != nil {
		return b, err
	}
	if e.kind.Storage.AfterDecode == nil && !e.lacksDefaults(message) {
		// Decoding the message would give the same object.
		return scheme.AppendStoredItem(b, obj)
	}
	if message, err = e.unstamped(value); err != nil {
		return b, err
	}
	read, err := e.decodeAsWritten(message)
	if err != nil {
		return b, err
	}
	item, err := scheme.EncodeItem(read)
	return append(b, item...), err
}

func (e *protobufEncoding) decode(_ context.Context, data []byte) (Object, error) {
	return e.decodeAsWritten(data)
}

func (e *protobufEncoding) decodeAsWritten(data []byte) (Object, error) {
	e.decodes.Add(1)
	obj := e.storage.New()
	err := scheme.DecodeProto(data, obj)
	if err == nil && e.kind.Storage.AfterDecode != nil {
		e.kind.Storage.AfterDecode(obj)
	}
	return obj, err
}

func (e *protobufEncoding) isJSON([]byte, *Version) bool { return false }

func (e *protobufEncoding) isProto(v *Version) bool { return v.isStored() }

// isDirect reports whether the item JSON in a version can be made from the message without decoding it. This is
// true for the stored version if no fields are set after decoding.
func (e *protobufEncoding) isDirect(v *Version) bool {
	return v.isStored() && e.kind.Storage.AfterDecode == nil
}

func (e *protobufEncoding) appendItem(b, data []byte, v *Version) (_ []byte, ok bool) {
	if !e.isDirect(v) {
		return b, false
	}
	return scheme.AppendItemOfProto(b, data, e.goType)
}

func (e *protobufEncoding) item(ctx context.Context, data []byte, v *Version) ([]byte, error) {
	if e.isDirect(v) {
		if item, ok := scheme.ItemOfProto(data, e.goType); ok {
			return item, nil
		}
	}
	obj, err := e.decodeAsWritten(data)
	if err != nil {
		return nil, err
	}
	return e.itemOf(ctx, obj, v)
}

func (e *protobufEncoding) metadata(data []byte) ([]byte, error) {
	message, err := wire.Metadata(data)
	if err != nil {
		return nil, err
	}
	e.decodes.Add(1)
	var meta metav1.ObjectMeta
	if err := meta.Unmarshal(message); err != nil {
		return nil, err
	}
	return scheme.Marshal(&meta)
}

// metadataProto cuts the metadata out of the message: the first field of both messages is an ObjectMeta.
func (e *protobufEncoding) metadataProto(data []byte) ([]byte, error) {
	return wire.MetadataField(data)
}
