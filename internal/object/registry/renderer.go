package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Renderer makes the bytes of responses from stored objects, and keeps them in the cache beside the object.
type Renderer struct {
	*bound
	decoder *Decoder
	// indexes are the fields that the cache has an index of, in the order of cache.Object.Fields.
	indexes []*Field
}

func (r *Renderer) indexNames() []string {
	names := make([]string, len(r.indexes))
	for i, f := range r.indexes {
		names[i] = f.Name
	}
	return names
}

// ItemJSON returns the JSON of o in version v: without apiVersion and kind for a kind with a Go type, the whole
// document for a custom resource. A result that has to be made is kept beside o. If several requests need the same
// conversion at the same time, a conversion webhook is called once for all of them. The result must not be
// changed.
func (r *Renderer) ItemJSON(ctx context.Context, o *cache.Object, v *Version) ([]byte, error) {
	if o.Err() == nil && r.codec.isJSON(o.Data, v) {
		return o.Data, nil
	}
	id := r.codec.jsonID(v)
	if item, ok := cachedItem(o, id); ok {
		return item, nil
	}
	if _, converts := r.codec.encoding.(batchEncoding); !converts {
		return r.encoded(ctx, o, id, v)
	}
	return r.codec.conversions.share(ctx, o, func() ([]byte, error) { return r.encoded(ctx, o, id, v) })
}

func (r *Renderer) encoded(ctx context.Context, o *cache.Object, id cache.EncodingID, v *Version) ([]byte, error) {
	return r.cache.Encoded(o, id, func() ([]byte, error) { return r.encodeItem(ctx, o, v) })
}

// Prepare makes the results of ItemJSON for all objects together, if this costs less than one after the other: for
// a list of custom resources it calls a conversion webhook once, not once for each object.
func (r *Renderer) Prepare(ctx context.Context, objects []*cache.Object) error {
	batch, ok := r.codec.encoding.(batchEncoding)
	if !ok {
		return nil
	}
	v := r.codec.storage
	id := batch.jsonID(v)
	var lacking []*cache.Object
	var data [][]byte
	for _, o := range objects {
		if !r.HasPrepared(o) {
			lacking = append(lacking, o)
			data = append(data, o.Data)
		}
	}
	if len(data) == 0 {
		return nil
	}
	items, err := batch.items(ctx, data)
	if err != nil {
		if hasItems(lacking, id) {
			return nil
		}
		return err
	}
	for i, o := range lacking {
		if _, err := r.cache.Encoded(o, id, func() ([]byte, error) { return items[i], nil }); err != nil {
			return err
		}
	}
	return nil
}

// hasItems reports whether the cache has the results of ItemJSON for all objects.
func hasItems(objects []*cache.Object, id cache.EncodingID) bool {
	for _, o := range objects {
		if _, ok := cachedItem(o, id); !ok {
			return false
		}
	}
	return true
}

// IsPrepared reports whether the kind may need Prepare. Callers then pass it many objects at a time, which costs
// less than few objects at a time.
func (r *Renderer) IsPrepared() bool {
	_, ok := r.codec.encoding.(batchEncoding)
	return ok
}

// HasPrepared reports whether ItemJSON can return the JSON of o without a conversion.
func (r *Renderer) HasPrepared(o *cache.Object) bool {
	batch, ok := r.codec.encoding.(batchEncoding)
	if !ok || o.Err() != nil || batch.isJSON(o.Data, r.codec.storage) {
		return true
	}
	_, cached := o.CachedEncoding(batch.jsonID(r.codec.storage))
	return cached
}

// PreparesFields reports whether Prepare should be called for objects before FieldValue is called for a field.
func (r *Renderer) PreparesFields(name string) bool {
	return r.IsPrepared() && slices.ContainsFunc(r.kind.Selection.Fields, func(f Field) bool { return f.Name == name && f.Members != nil })
}

// ItemProto returns the protobuf message of o in version v. A custom resource has none.
func (r *Renderer) ItemProto(ctx context.Context, o *cache.Object, v *Version) ([]byte, error) {
	if o.Err() == nil && r.codec.isProto(v) {
		return o.Data, nil
	}
	return r.cache.Encoded(o, r.protoID(v), func() ([]byte, error) {
		obj, err := r.decoder.DecodeAs(ctx, o, v)
		if err != nil {
			return nil, err
		}
		return scheme.EncodeProto(obj)
	})
}

// MetadataJSON returns the JSON of o's metadata. If the cache has the item JSON of o, the metadata is cut out of
// it. Otherwise it is made without the rest of the object.
func (r *Renderer) MetadataJSON(ctx context.Context, o *cache.Object) ([]byte, error) {
	return r.cache.Encoded(o, EncodingMetadata, func() ([]byte, error) {
		if err := o.Err(); err != nil {
			return nil, kerrors.NewInternalError(err)
		}
		var meta []byte
		var err error
		if item, ok := o.CachedEncoding(EncodingJSON); ok {
			meta, err = metadataOf(item)
		} else {
			meta, err = r.codec.metadata(o.Data)
		}
		if err != nil {
			return nil, err
		}
		return r.ShownMetadata(meta)
	})
}

// MetadataProto returns the message of a PartialObjectMetadata with o's metadata.
func (r *Renderer) MetadataProto(ctx context.Context, o *cache.Object) ([]byte, error) {
	if err := o.Err(); err != nil {
		return nil, kerrors.NewInternalError(err)
	}
	message, err := r.codec.metadataProto(o.Data)
	if err != nil {
		return nil, err
	}
	if message != nil {
		return r.shownMetadataProto(message)
	}
	return r.cache.Encoded(o, EncodingMetadataProto, func() ([]byte, error) {
		meta, err := r.MetadataJSON(ctx, o)
		if err != nil {
			return nil, err
		}
		return partialProto(meta)
	})
}

// ShownMetadata returns the JSON of metadata for responses that do not contain the object.
func (r *Renderer) ShownMetadata(meta []byte) ([]byte, error) {
	hidden := r.kind.Metadata.HiddenAnnotation
	if hidden == "" || !bytes.Contains(meta, []byte(hidden)) {
		return meta, nil
	}
	var m metav1.ObjectMeta
	if err := json.Unmarshal(meta, &m); err != nil {
		return nil, err
	}
	delete(m.Annotations, hidden)
	return json.Marshal(&m)
}

// shownMetadataProto is ShownMetadata for the message of a PartialObjectMetadata.
func (r *Renderer) shownMetadataProto(meta []byte) ([]byte, error) {
	hidden := r.kind.Metadata.HiddenAnnotation
	if hidden == "" || !bytes.Contains(meta, []byte(hidden)) {
		return meta, nil
	}
	var m metav1.PartialObjectMetadata
	if err := m.Unmarshal(meta); err != nil {
		return nil, err
	}
	delete(m.Annotations, hidden)
	return m.Marshal()
}

// protoID identifies the protobuf message in a version that is not the stored one.
func (r *Renderer) protoID(v *Version) cache.EncodingID { return r.kind.firstEncodingID(v) + 1 }

// rowID identifies the row of o in a table. Cells are made from the storage version. A custom resource has a Kind
// for each of its versions, and this version is the storage version of that Kind. If o has to be converted to it,
// its row is used no longer than the conversion.
func (r *Renderer) rowID(o *cache.Object) cache.EncodingID {
	id := r.kind.firstEncodingID(r.codec.storage) + 2
	if batch, ok := r.codec.encoding.(batchEncoding); ok && !batch.isJSON(o.Data, r.codec.storage) {
		return id.In(batch.jsonID(r.codec.storage).Period())
	}
	return id
}

// encodeItem returns the item JSON of o in version v. If an object cannot be encoded, it returns a placeholder, so that
// lists of other objects do not fail: see unshowableError.
func (r *Renderer) encodeItem(ctx context.Context, o *cache.Object, v *Version) ([]byte, error) {
	item, err := r.encode(ctx, o, v)
	var unshowable *unshowableError
	if errors.As(err, &unshowable) {
		return unshowable.item()
	}
	return item, err
}

// encode is encodeItem for an object that can be encoded.
func (r *Renderer) encode(ctx context.Context, o *cache.Object, v *Version) ([]byte, error) {
	if err := o.Err(); err != nil {
		return nil, kerrors.NewInternalError(err)
	}
	return r.codec.item(ctx, o.Data, v)
}

// FieldValue returns the value of a selectable field of o.
func (r *Renderer) FieldValue(ctx context.Context, o *cache.Object, name string) (string, error) {
	switch name {
	case "metadata.name":
		return o.Name, nil
	case "metadata.namespace":
		return o.Namespace, nil
	}
	if err := o.Err(); err != nil {
		return "", kerrors.NewInternalError(err)
	}
	for i, f := range r.indexes {
		if f.Name == name {
			return o.Fields[i], nil
		}
	}
	for i := range r.kind.Selection.Fields {
		f := &r.kind.Selection.Fields[i]
		switch {
		case f.Name != name:
		case f.Members != nil:
			doc, err := r.ItemJSON(ctx, o, r.codec.storage)
			if err != nil {
				return "", err
			}
			return documentText(doc, f.Members)
		case f.Get != nil:
			obj, err := r.decoder.Decode(ctx, o)
			if err != nil {
				return "", err
			}
			return f.Get(obj), nil
		default:
			return fieldText(f, o.Data), nil
		}
	}
	return "", fmt.Errorf("%s has no field %q", r.kind.GroupResource(), name)
}

// EncodedChunk returns the encoding id of a chunk: the cached one, or else the result of encode.
func (r *Renderer) EncodedChunk(chunk cache.Chunk, id cache.EncodingID, encode func() ([]byte, error)) ([]byte, error) {
	return r.cache.EncodedChunk(chunk, id, encode)
}

// NoteRequest records a request for chunks in an encoding, and reports whether there was one before in the last
// minutes.
func (r *Renderer) NoteRequest(id cache.EncodingID) bool { return r.cache.NoteRequest(id) }

// ItemEncodingID identifies the items of lists in version v, as JSON or as protobuf messages.
func (r *Renderer) ItemEncodingID(v *Version, proto bool) cache.EncodingID {
	if proto {
		return r.protoID(v)
	}
	return r.codec.jsonID(v)
}

// ItemJSONOnce is ItemJSON for a single use: it does not add the result to the cache.
func (r *Renderer) ItemJSONOnce(ctx context.Context, o *cache.Object, v *Version) ([]byte, error) {
	if o.Err() == nil && r.codec.isJSON(o.Data, v) {
		return o.Data, nil
	}
	if data, ok := cachedItem(o, r.codec.jsonID(v)); ok {
		return data, nil
	}
	return r.encodeItem(ctx, o, v)
}

// AppendItemJSONOnce appends the result of ItemJSONOnce.
func (r *Renderer) AppendItemJSONOnce(ctx context.Context, b []byte, o *cache.Object, v *Version) ([]byte, error) {
	direct, ok := r.codec.encoding.(appendingEncoding)
	if _, cached := o.CachedEncoding(r.codec.jsonID(v)); ok && !cached && o.Err() == nil {
		if b, ok = direct.appendItem(b, o.Data, v); ok {
			return b, nil
		}
	}
	item, err := r.ItemJSONOnce(ctx, o, v)
	return append(b, item...), err
}

// WrittenJSON is ItemJSONOnce without a conversion webhook: a custom resource is in the version that it was written in.
func (r *Renderer) WrittenJSON(ctx context.Context, o *cache.Object, v *Version) ([]byte, error) {
	if _, ok := r.codec.encoding.(batchEncoding); ok && o.Err() == nil {
		return o.Data, nil
	}
	return r.ItemJSONOnce(ctx, o, v)
}

// ResultJSON returns the item JSON of a result in version v.
func (r *Renderer) ResultJSON(ctx context.Context, res Result, v *Version) ([]byte, error) {
	if res.item != nil && v.isStored() {
		return res.item, nil
	}
	return r.encodeItem(ctx, res.Object, v)
}
