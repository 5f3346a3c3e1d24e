package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/scheme"
	"github.com/keelson-dev/keelson/storage"
)

// Root is the key prefix of everything the server stores.
const Root = "/registry/"

// maxFutureWait bounds how long a read waits for a resourceVersion that has not
// happened yet, as kube-apiserver does.
const maxFutureWait = 3 * time.Second

// Resource is a kind bound to a store and to the cache on it.
type Resource struct {
	Kind  *Kind
	store storage.Store
	all   *cache.Cache
	cache *cache.Resource
	codec *codec
	// indexes are the fields that the cache has an index of, in the order of cache.Object.Fields.
	indexes []*Field
	// prefix is the storage key of the collection, ended by a slash.
	prefix string
	now    func() time.Time
	// allocator gives objects what no two of them may have; nil for most.
	allocator Allocator
}

func newResource(k *Kind, store storage.Store, c *cache.Cache, now func() time.Time) (*Resource, error) {
	codec, err := newCodec(k)
	if err != nil {
		return nil, err
	}
	r := &Resource{
		Kind: k, store: store, all: c, codec: codec, indexes: k.Selection.indexed(),
		prefix: Root + k.Storage.Path + "/", now: now,
	}
	if k.Storage.Path != "" {
		r.cache = c.Resource(cache.Config{
			Resource: k.GroupResource().String(), Prefix: r.prefix,
			Namespaced: k.Namespaced, Indexes: r.indexNames(), Codec: codec,
		})
	}
	return r, nil
}

func (r *Resource) indexNames() []string {
	names := make([]string, len(r.indexes))
	for i, f := range r.indexes {
		names[i] = f.Name
	}
	return names
}

// Virtual says that the kind has no stored objects (reviews, bindings).
func (r *Resource) Virtual() bool { return r.cache == nil }

// Decodes is the number of objects decoded from stored bytes so far.
func (r *Resource) Decodes() int64 { return r.codec.decodes.Load() }

// Now is the time.
func (r *Resource) Now() time.Time { return r.now() }

// Key is an object's key below the resource's prefix.
func (r *Resource) Key(namespace, name string) string {
	if r.Kind.Namespaced {
		return namespace + "/" + name
	}
	return name
}

// Current returns a view that reflects every write acknowledged before the call.
func (r *Resource) Current(ctx context.Context) (*cache.View, error) {
	return r.cache.View(ctx, cache.Latest)
}

// CurrentRevision is the revision of the latest write, to whatever resource, that was
// acknowledged before the call.
func (r *Resource) CurrentRevision(ctx context.Context) (int64, error) { return r.all.Current(ctx) }

// NotOlderThan returns a view at or after revision; 0 is any. A revision that does
// not come within three seconds is a TooLargeVersion error.
func (r *Resource) NotOlderThan(ctx context.Context, revision int64) (*cache.View, error) {
	if err := r.reached(ctx, revision); err != nil {
		return nil, err
	}
	return r.cache.View(ctx, revision)
}

// Exactly returns the view at revision, 0 being any; one that has not happened is
// waited for as NotOlderThan does. It fails with *storage.CompactedError, here or
// later when the view is read, once the store has forgotten the revision.
func (r *Resource) Exactly(ctx context.Context, revision int64) (*cache.View, error) {
	if revision <= 0 {
		return r.NotOlderThan(ctx, 0)
	}
	if err := r.reached(ctx, revision); err != nil {
		return nil, err
	}
	return r.cache.ViewAt(ctx, revision)
}

// reached waits for a revision, for three seconds at most.
func (r *Resource) reached(ctx context.Context, revision int64) error {
	if r.all.Applied() >= revision {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxFutureWait)
	defer cancel()
	return r.all.Await(ctx, revision)
}

// All calls yield in key order with all objects of a namespace, "" being all
// namespaces, as every write acknowledged before the call has left them, until it
// returns false.
func (r *Resource) All(ctx context.Context, namespace string, yield func(*cache.Object) bool) error {
	view, err := r.Current(ctx)
	if err != nil {
		return err
	}
	prefix := ""
	if namespace != "" {
		prefix = namespace + "/"
	}
	return view.Ascend(ctx, "", prefix, 0, yield)
}

// Watch returns a cursor to the changes after revision from.
func (r *Resource) Watch(ctx context.Context, from int64, in cache.Interest) (*cache.Cursor, error) {
	return r.cache.Watch(ctx, from, in)
}

// Decode makes the object of o, in the storage version. The caller owns it.
func (r *Resource) Decode(ctx context.Context, o *cache.Object) (Object, error) {
	if err := o.Err(); err != nil {
		return nil, kerrors.NewInternalError(err)
	}
	if batch, ok := r.codec.encoding.(batchEncoding); ok {
		if item, ok := o.Kept(batch.jsonForm(r.codec.storage)); ok {
			return batch.decodeAsWritten(item)
		}
	}
	return r.codec.decode(ctx, o.Data)
}

// DecodeStored makes the object of o in the version that it was written in, without a conversion: deleting an object,
// and its metadata, must not depend on a webhook. The caller owns it.
func (r *Resource) DecodeStored(o *cache.Object) (Object, error) {
	if err := o.Err(); err != nil {
		return nil, kerrors.NewInternalError(err)
	}
	return r.codec.decodeAsWritten(o.Data)
}

// DecodeAs makes the object of o in version v. The caller owns it.
func (r *Resource) DecodeAs(ctx context.Context, o *cache.Object, v *Version) (Object, error) {
	obj, err := r.Decode(ctx, o)
	if err != nil {
		return nil, err
	}
	return v.fromStorage(ctx, obj)
}

// ToVersion converts an object from the storage version.
func (r *Resource) ToVersion(ctx context.Context, obj Object, v *Version) (Object, error) {
	return v.fromStorage(ctx, obj)
}

// ToStorage converts an object to the storage version.
func (r *Resource) ToStorage(ctx context.Context, obj Object, v *Version) (Object, error) {
	if v.Check != nil {
		if err := v.Check(obj); err != nil {
			return nil, kerrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", r.Kind.Name, v.Name, r.Kind.Name, err))
		}
	}
	if v.ToStorage == nil {
		return obj, nil
	}
	return v.ToStorage(ctx, obj)
}

// ItemJSON returns the JSON of o in version v: without apiVersion and kind for a kind with a Go type, the whole document
// for a custom resource. What has to be made for it is kept beside o. The result must not be changed.
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

// Backend is a store with the cache on it.
type Backend struct {
	Store storage.Store
	Cache *cache.Cache
}

// Registry is the set of resources that a server serves.
type Registry struct {
	resources map[schema.GroupResource]*Resource
	list      []*Resource

	transformer func(schema.GroupResource) Transformer // nil: see Transform
	place       func(k *Kind, prefix string) Backend
	now         func() time.Time
}

// New binds kinds to a store and to the cache on it.
func New(kinds []*Kind, store storage.Store, c *cache.Cache, now func() time.Time) (*Registry, error) {
	return NewPlaced(kinds, func(*Kind, string) Backend { return Backend{store, c} }, now)
}

// NewPlaced binds each kind to the backend that place names for it and for the
// prefix of its keys. Revisions of different stores do not compare.
func NewPlaced(kinds []*Kind, place func(k *Kind, prefix string) Backend, now func() time.Time) (*Registry, error) {
	g := &Registry{resources: map[schema.GroupResource]*Resource{}, place: place, now: now}
	for _, k := range kinds {
		on := place(k, Root+k.Storage.Path+"/")
		r, err := newResource(k, on.Store, on.Cache, now)
		if err != nil {
			return nil, err
		}
		g.list = append(g.list, r)
		for _, v := range k.Versions {
			group := k.Group
			if v.Group != "" {
				group = v.Group
			}
			g.resources[schema.GroupResource{Group: group, Resource: k.Resource}] = r
		}
	}
	return g, nil
}

// Resource returns the resource of that name, nil if there is none.
func (g *Registry) Resource(r schema.GroupResource) *Resource { return g.resources[r] }

// Resources returns all resources, in the order of the kinds.
func (g *Registry) Resources() []*Resource { return g.list }

// Get implements Access.
func (g *Registry) Get(ctx context.Context, gr schema.GroupResource, namespace, name string) (Object, error) {
	r := g.resources[gr]
	if r == nil {
		return nil, apierr.PathNotFound()
	}
	o, err := r.find(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return r.Decode(ctx, o)
}

// List implements Access.
func (g *Registry) List(ctx context.Context, gr schema.GroupResource, namespace string) ([]Object, error) {
	r := g.resources[gr]
	if r == nil {
		return nil, apierr.PathNotFound()
	}
	var objs []Object
	var failed error
	err := r.All(ctx, namespace, func(o *cache.Object) bool {
		var obj Object
		if o, failed = r.Readable(ctx, o); failed != nil {
			return false
		}
		if obj, failed = r.Decode(ctx, o); failed != nil {
			return false
		}
		objs = append(objs, obj)
		return true
	})
	if err == nil {
		err = failed
	}
	return objs, err
}

// find returns the latest version of an object.
func (r *Resource) find(ctx context.Context, namespace, name string) (*cache.Object, error) {
	o, err := r.current(ctx, r.Key(namespace, name))
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, apierr.NotFound(r.Kind.GroupResource(), name)
	}
	return r.Readable(ctx, o)
}

// Latest returns the latest version of an object, nil if there is none. It may be one that could not be
// read: see Readable.
func (r *Resource) Latest(ctx context.Context, namespace, name string) (*cache.Object, error) {
	return r.current(ctx, r.Key(namespace, name))
}

// current is Latest of the object with a key.
func (r *Resource) current(ctx context.Context, key string) (*cache.Object, error) {
	view, err := r.Current(ctx)
	if err != nil {
		return nil, err
	}
	o, _, err := view.Get(ctx, key)
	return o, err
}

// Counted returns the number of objects if that is known: if the resource is in use.
func (r *Resource) Counted() (objects int, ok bool) {
	if r.Virtual() {
		return 0, false
	}
	stats := r.cache.Stats()
	return stats.Objects, stats.Counted
}

// Loaded says whether all objects are in memory.
func (r *Resource) Loaded() bool { return !r.Virtual() && r.cache.Stats().Loaded }
