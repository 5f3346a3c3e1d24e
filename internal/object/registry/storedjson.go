package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// jsonEncoding stores Go types as JSON. Data is the item JSON of the storage version, or the whole stored document if
// the kind converts that to the storage version (Storage.StoredJSON).
type jsonEncoding struct {
	typed
	stored *StoredJSON // nil: the document is the JSON of the Go type
	// head is the beginning of the document before the item: apiVersion and kind.
	head []byte
}

func newJSONEncoding(k *Kind, storage *Version, decodes *atomic.Int64) *jsonEncoding {
	return &jsonEncoding{
		typed: typed{k, storage, decodes}, stored: k.Storage.StoredJSON,
		head: scheme.JSONHead(schema.GroupVersionKind{Group: k.Group, Version: k.Storage.Version, Kind: k.Name}),
	}
}

func (e *jsonEncoding) read(value []byte, revision int64) (cache.Header, error) {
	var h cache.Header
	var document struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	// Unmarshal checks the entire document: the code below must not cut a part out of invalid JSON.
	if err := json.Unmarshal(value, &document); err != nil {
		return h, err
	}
	item, err := e.unstamped(value)
	if err != nil {
		return h, err
	}
	h.Labels = labelsOf(document.Metadata.Labels)
	h.Data, err = wire.StampJSON(item, revision)
	return h, err
}

func (e *jsonEncoding) unstamped(value []byte) ([]byte, error) {
	value = bytes.TrimSpace(value)
	if item, ok := bytes.CutPrefix(value, e.head); ok && e.stored == nil {
		return append([]byte{'{'}, item...), nil
	}
	return value, nil
}

func (e *jsonEncoding) restamp(data []byte, revision int64) ([]byte, error) {
	return wire.StampJSON(data, revision)
}

func (e *jsonEncoding) encode(_ context.Context, obj Object) ([]byte, error) {
	if e.stored != nil {
		document, err := e.stored.Encode(obj)
		if err != nil {
			return nil, err
		}
		return append(document, '\n'), nil
	}
	item, err := scheme.EncodeItem(obj)
	if err != nil {
		return nil, err
	}
	return scheme.JSONObject(e.head, item), nil
}

func (e *jsonEncoding) preview(_ context.Context, b []byte, _ Object, value []byte) ([]byte, error) {
	if e.stored == nil {
		return b, nil
	}
	data, err := e.unstamped(value)
	if err != nil {
		return b, err
	}
	read, err := e.decodeAsWritten(data)
	if err != nil {
		return b, err
	}
	item, err := scheme.EncodeItem(read)
	return append(b, item...), err
}

func (e *jsonEncoding) decode(_ context.Context, data []byte) (Object, error) {
	return e.decodeAsWritten(data)
}

func (e *jsonEncoding) decodeAsWritten(data []byte) (Object, error) {
	e.decodes.Add(1)
	if e.stored != nil {
		return e.stored.Decode(data)
	}
	obj := e.storage.New()
	return obj, json.Unmarshal(data, obj)
}

func (e *jsonEncoding) isJSON(_ []byte, v *Version) bool { return e.stored == nil && v.isStored() }

func (e *jsonEncoding) isProto(*Version) bool { return false }

func (e *jsonEncoding) item(ctx context.Context, data []byte, v *Version) ([]byte, error) {
	obj, err := e.decodeAsWritten(data)
	if err != nil {
		return nil, err
	}
	return e.itemOf(ctx, obj, v)
}

func (e *jsonEncoding) metadata(data []byte) ([]byte, error) {
	if e.stored == nil {
		return metadataOf(data)
	}
	obj, err := e.decodeAsWritten(data)
	if err != nil {
		return nil, err
	}
	item, err := scheme.EncodeItem(obj)
	if err != nil {
		return nil, err
	}
	return metadataOf(item)
}

func (e *jsonEncoding) metadataProto([]byte) ([]byte, error) { return nil, nil }
