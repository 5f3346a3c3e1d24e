package registry

import (
	"bytes"
	"context"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/scheme"
	"github.com/keelson-dev/keelson/scheme/wire"
)

// Documents reads and makes the stored documents of a kind whose objects are trees
// (custom resources). A document is the whole JSON of an object in some version of
// the kind, apiVersion and kind included. Such a kind has one *Kind for each of its
// versions, and they share what is stored: the kind's functions see objects of the version that a
// request came in. All methods may be called concurrently.
type Documents interface {
	// Normal returns a stored document as it reads today: what its version's schema
	// does not know is gone, defaults are there. revision is that of the write. The
	// result may be the argument.
	Normal(doc []byte, revision int64) ([]byte, error)
	// Is says whether a document is of this version.
	Is(doc []byte) bool
	// Convert brings documents of other versions to this one. They are converted in
	// one step; an error concerns all of them.
	Convert(ctx context.Context, docs [][]byte) ([][]byte, error)
	// Decode makes the object of a document, in the document's version. The caller
	// owns it.
	Decode(doc []byte) (Object, error)
	// Encode makes the document to store, in the version that is stored, of an object
	// of any version.
	Encode(ctx context.Context, obj Object) ([]byte, error)
}

// Trees says that the kind's objects are trees and its documents whole.
func (k *Kind) Unstructured() bool { return k.Storage.Documents != nil }

// BindVersions binds the kinds of the versions of one collection to the store on
// which place puts it. The caller may serve them; the registry does not keep them.
func (g *Registry) BindVersions(kinds []*Kind) ([]*Resource, error) {
	out := make([]*Resource, 0, len(kinds))
	for _, k := range kinds {
		on := g.place(k, Root+k.Storage.Path+"/")
		r, err := newResource(k, on.Store, on.Cache, g.now)
		if err != nil {
			return nil, err
		}
		if g.transformer != nil {
			r.codec.transformer = g.transformer(k.GroupResource())
		}
		out = append(out, r)
	}
	return out, nil
}

// Unbind drops what is in memory of a resource that BindVersions made, for all
// versions of its collection. Watches end.
func (r *Resource) Unbind() { r.all.Remove(r.prefix) }

// document returns the document of o in the kind's version, from what is kept
// beside o where that is another one.
func (r *Resource) document(ctx context.Context, o *cache.Object) ([]byte, error) {
	if err := o.Err(); err != nil {
		return nil, kerrors.NewInternalError(err)
	}
	if r.Kind.Storage.Documents.Is(o.Data) {
		return o.Data, nil
	}
	return r.cache.Form(o, r.versionForm(r.codec.storage), func() ([]byte, error) {
		docs, err := r.Kind.Storage.Documents.Convert(ctx, [][]byte{o.Data})
		if err != nil {
			return nil, err
		}
		return docs[0], nil
	})
}

// Prepare makes at once the documents that the objects lack in the kind's version,
// so that a list costs one conversion and not one an object.
func (r *Resource) Prepare(ctx context.Context, objects []*cache.Object) error {
	if !r.Kind.Unstructured() {
		return nil
	}
	form := r.versionForm(r.codec.storage)
	var lacking []*cache.Object
	var docs [][]byte
	for _, o := range objects {
		if o.Err() != nil || r.Kind.Storage.Documents.Is(o.Data) {
			continue
		}
		if _, ok := o.Kept(form); !ok {
			lacking = append(lacking, o)
			docs = append(docs, o.Data)
		}
	}
	if len(docs) == 0 {
		return nil
	}
	converted, err := r.Kind.Storage.Documents.Convert(ctx, docs)
	if err != nil {
		return err
	}
	for i, o := range lacking {
		if _, err := r.cache.Form(o, form, func() ([]byte, error) { return converted[i], nil }); err != nil {
			return err
		}
	}
	return nil
}

// decodeDocument makes the object of data in the kind's version.
func (c *codec) decodeDocument(ctx context.Context, data []byte) (Object, error) {
	if !c.kind.Storage.Documents.Is(data) {
		docs, err := c.kind.Storage.Documents.Convert(ctx, [][]byte{data})
		if err != nil {
			return nil, err
		}
		data = docs[0]
	}
	return c.kind.Storage.Documents.Decode(data)
}

// normal is plain for documents.
func (c *codec) normal(value []byte, revision int64) ([]byte, error) {
	return c.kind.Storage.Documents.Normal(bytes.TrimSpace(value), revision)
}

// unstamped is what reading value would give, but for the resourceVersion.
func (c *codec) unstamped(value []byte) ([]byte, error) {
	if c.kind.Unstructured() {
		return c.normal(value, 0)
	}
	return c.plain(value)
}

// PartialProto returns the message of a PartialObjectMetadata with o's metadata,
// for kinds that have no protobuf encoding of their own.
func (r *Resource) PartialProto(ctx context.Context, o *cache.Object) ([]byte, error) {
	return r.cache.Form(o, FormMetadataProto, func() ([]byte, error) {
		meta, err := r.MetadataJSON(ctx, o)
		if err != nil {
			return nil, err
		}
		return partialProto(meta)
	})
}

func partialProto(meta []byte) ([]byte, error) {
	partial := &metav1.PartialObjectMetadata{}
	if err := scheme.UnmarshalTree(meta, &partial.ObjectMeta); err != nil {
		return nil, err
	}
	return scheme.EncodeProto(partial)
}

// PartialOf returns the message of a PartialObjectMetadata with the metadata of a
// tree.
func PartialOf(obj Object) ([]byte, error) {
	doc, err := scheme.MarshalTree(obj)
	if err != nil {
		return nil, err
	}
	meta, _, _, found, err := wire.Member(doc, "metadata")
	if err != nil || !found {
		return scheme.EncodeProto(&metav1.PartialObjectMetadata{})
	}
	return partialProto(meta)
}

// documentText returns the text of a simple value of a document, "" for one that
// is not there, null, an object or a list.
func documentText(doc []byte, path []string) (string, error) {
	value := doc
	for _, name := range path {
		member, _, _, found, err := wire.Member(value, name)
		if err != nil || !found || len(member) == 0 {
			return "", err
		}
		value = member
		if value[0] != '{' && name != path[len(path)-1] {
			return "", nil
		}
	}
	switch value[0] {
	case '"':
		var s string
		err := scheme.UnmarshalTree(value, &s)
		return s, err
	case '{', '[', 'n':
		return "", nil
	}
	return string(value), nil
}

// DecodeStored makes the object of o in the version that it was written in, without
// a conversion: deleting an object, and its metadata, must not depend on a webhook.
// The caller owns it.
func (r *Resource) DecodeStored(o *cache.Object) (Object, error) {
	if !r.Kind.Unstructured() {
		return r.Decode(context.Background(), o) // no conversion
	}
	if err := o.Err(); err != nil {
		return nil, kerrors.NewInternalError(err)
	}
	r.codec.decodes.Add(1)
	return r.Kind.Storage.Documents.Decode(o.Data)
}
