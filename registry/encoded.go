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

	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/scheme"
)

// ItemJSON returns the JSON of o in version v: without apiVersion and kind for a kind with a Go type, the whole
// document for a custom resource. What has to be made for it is kept beside o. The result must not be changed.
func (r *Resource) ItemJSON(ctx context.Context, o *cache.Object, v *Version) ([]byte, error) {
	if o.Err() == nil && r.codec.isJSON(o.Data, v) {
		return o.Data, nil
	}
	return r.cache.Form(o, r.codec.jsonForm(v), func() ([]byte, error) { return r.encodeItem(ctx, o, v) })
}

// Prepare makes at once what ItemJSON has to make of the objects, if that costs less than one after the other: a list
// of custom resources calls a conversion webhook once and not for each object.
func (r *Resource) Prepare(ctx context.Context, objects []*cache.Object) error {
	batch, ok := r.codec.encoding.(batchEncoding)
	if !ok {
		return nil
	}
	v := r.codec.storage
	form := batch.jsonForm(v)
	var lacking []*cache.Object
	var data [][]byte
	for _, o := range objects {
		if o.Err() != nil || batch.isJSON(o.Data, v) {
			continue
		}
		if _, ok := o.Kept(form); !ok {
			lacking = append(lacking, o)
			data = append(data, o.Data)
		}
	}
	if len(data) == 0 {
		return nil
	}
	items, err := batch.items(ctx, data)
	if err != nil {
		return err
	}
	for i, o := range lacking {
		if _, err := r.cache.Form(o, form, func() ([]byte, error) { return items[i], nil }); err != nil {
			return err
		}
	}
	return nil
}

// PreparesFields returns whether Prepare should be called for objects before FieldValue is asked for a field of them.
func (r *Resource) PreparesFields(name string) bool {
	if _, ok := r.codec.encoding.(batchEncoding); !ok {
		return false
	}
	return slices.ContainsFunc(r.Kind.Selection.Fields, func(f Field) bool { return f.Name == name && f.Members != nil })
}

// ItemProto returns the protobuf message of o in version v. A custom resource has none.
func (r *Resource) ItemProto(ctx context.Context, o *cache.Object, v *Version) ([]byte, error) {
	if o.Err() == nil && r.codec.isProto(v) {
		return o.Data, nil
	}
	return r.cache.Form(o, r.protoForm(v), func() ([]byte, error) {
		obj, err := r.DecodeAs(ctx, o, v)
		if err != nil {
			return nil, err
		}
		return scheme.EncodeProto(obj)
	})
}

// MetadataJSON returns the JSON of o's metadata: a part of its item JSON if that is kept, and else made without the
// rest of the object.
func (r *Resource) MetadataJSON(ctx context.Context, o *cache.Object) ([]byte, error) {
	return r.cache.Form(o, FormMetadata, func() ([]byte, error) {
		if err := o.Err(); err != nil {
			return nil, kerrors.NewInternalError(err)
		}
		var meta []byte
		var err error
		if item, ok := o.Kept(FormJSON); ok {
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
func (r *Resource) MetadataProto(ctx context.Context, o *cache.Object) ([]byte, error) {
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
	return r.cache.Form(o, FormMetadataProto, func() ([]byte, error) {
		meta, err := r.MetadataJSON(ctx, o)
		if err != nil {
			return nil, err
		}
		return partialProto(meta)
	})
}

// ShownMetadata returns the JSON of metadata as it is shown without its object.
func (r *Resource) ShownMetadata(meta []byte) ([]byte, error) {
	hidden := r.Kind.Metadata.HiddenAnnotation
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
func (r *Resource) shownMetadataProto(meta []byte) ([]byte, error) {
	hidden := r.Kind.Metadata.HiddenAnnotation
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

// protoForm returns the form of the protobuf message in a version that is not the stored one.
func (r *Resource) protoForm(v *Version) cache.FormID { return r.Kind.formOf(v) + 1 }

// rowForm returns the form of a table's row. Cells are made from the storage version; a custom resource has a Kind for
// each of its versions, of which that is the storage version.
func (r *Resource) rowForm() cache.FormID { return r.Kind.formOf(r.codec.storage) + 2 }

// encodeItem makes the item JSON of o in version v. An object that cannot be encoded is shown all the same, so that
// lists of others do not fail for it: see unshowableError.
func (r *Resource) encodeItem(ctx context.Context, o *cache.Object, v *Version) ([]byte, error) {
	item, err := r.encode(ctx, o, v)
	var unshowable *unshowableError
	if errors.As(err, &unshowable) {
		return unshowable.item()
	}
	return item, err
}

// encode is encodeItem for an object that can be encoded.
func (r *Resource) encode(ctx context.Context, o *cache.Object, v *Version) ([]byte, error) {
	if err := o.Err(); err != nil {
		return nil, kerrors.NewInternalError(err)
	}
	return r.codec.item(ctx, o.Data, v)
}

// FieldValue returns the value of a selectable field of o.
func (r *Resource) FieldValue(ctx context.Context, o *cache.Object, name string) (string, error) {
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
	for i := range r.Kind.Selection.Fields {
		f := &r.Kind.Selection.Fields[i]
		switch {
		case f.Name != name:
		case f.Members != nil:
			doc, err := r.ItemJSON(ctx, o, r.codec.storage)
			if err != nil {
				return "", err
			}
			return documentText(doc, f.Members)
		case f.Get != nil:
			obj, err := r.Decode(ctx, o)
			if err != nil {
				return "", err
			}
			return f.Get(obj), nil
		default:
			return fieldText(f, o.Data), nil
		}
	}
	return "", fmt.Errorf("%s has no field %q", r.Kind.GroupResource(), name)
}

// GroupForm returns what make makes of a group of objects in the form id, from what
// is kept with the group where it is there.
func (r *Resource) GroupForm(g cache.Group, id cache.FormID, make func() ([]byte, error)) ([]byte, error) {
	return r.cache.GroupForm(g, id, make)
}

// AskedAgain says whether groups were asked for as this form before, not long ago,
// and notes that they are now.
func (r *Resource) AskedAgain(id cache.FormID) bool { return r.cache.AskedAgain(id) }

// ItemForm returns the form of items in version v, as JSON or as protobuf messages.
func (r *Resource) ItemForm(v *Version, proto bool) cache.FormID {
	if proto {
		return r.protoForm(v)
	}
	return r.codec.jsonForm(v)
}

// ItemJSONOnce is ItemJSON for a single use: what is not kept yet is not kept then.
func (r *Resource) ItemJSONOnce(ctx context.Context, o *cache.Object, v *Version) ([]byte, error) {
	if o.Err() == nil && r.codec.isJSON(o.Data, v) {
		return o.Data, nil
	}
	if data, ok := o.Kept(r.codec.jsonForm(v)); ok {
		return data, nil
	}
	return r.encodeItem(ctx, o, v)
}
