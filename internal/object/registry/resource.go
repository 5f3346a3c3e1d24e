package registry

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
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
	// metrics are nil if nothing is recorded.
	metrics     *cache.Stored
	cacheReader cache.CacheReader
	// indexes are the fields that the cache has an index of, in the order of cache.Object.Fields.
	indexes []*Field
	// prefix is the storage key of the collection, ended by a slash.
	prefix string
	now    func() time.Time
	// allocator gives objects what no two of them may have; nil for most.
	allocator Allocator
	lastWrite atomic.Int64
	// keepsAuthors means that the store keeps who made a change.
	keepsAuthors bool
}

func newResource(k *Kind, on Backend, now func() time.Time) (*Resource, error) {
	codec, err := newCodec(k)
	if err != nil {
		return nil, err
	}
	r := &Resource{
		Kind: k, store: on.Store, all: on.Cache, metrics: on.Metrics.Resource(k.Group, k.Resource), codec: codec, indexes: k.Selection.indexed(),
		prefix: Root + k.Storage.Path + "/", now: now, keepsAuthors: keepsAuthors(on.Store),
	}
	r.cacheReader = r.cacheState
	if k.Storage.Path != "" {
		r.cache = on.Cache.Resource(cache.Config{
			Resource: k.GroupResource().String(), Prefix: r.prefix,
			Namespaced: k.Namespaced, Indexes: r.indexNames(), Codec: codec, Metrics: r.metrics,
		})
		r.metrics.Follow(&r.cacheReader)
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

// Virtual reports whether the kind has no stored objects (reviews, bindings).
func (r *Resource) Virtual() bool { return r.cache == nil }

// Decodes is the number of objects decoded from stored bytes so far.
func (r *Resource) Decodes() int64 { return r.codec.decodes.Load() }

// cacheState returns the state of the cache for metrics.
func (r *Resource) cacheState() cache.CacheState {
	s := r.cache.Stats()
	return cache.CacheState{
		Followed: s.Followed, Loaded: s.Loaded, Revision: s.Revision, Bytes: s.Bytes, Events: s.Events,
		LogBytes: s.WindowBytes, Cursors: s.Cursors, Interests: s.Interests, Loads: s.Loads,
	}
}

// Metrics returns what records how the resource is stored and read; nil records nothing.
func (r *Resource) Metrics() *cache.Stored { return r.metrics }

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

// CurrentRevision returns the revision of the latest write to any resource that was acknowledged before the call.
func (r *Resource) CurrentRevision(ctx context.Context) (int64, error) { return r.all.Current(ctx) }

// NotOlderThan returns a view at or after revision; 0 is any. A revision that does
// not come within three seconds is a TooLargeVersion error.
func (r *Resource) NotOlderThan(ctx context.Context, revision int64) (*cache.View, error) {
	if err := r.reached(ctx, revision); err != nil {
		return nil, err
	}
	return r.cache.View(ctx, revision)
}

// Exactly returns the view at revision; 0 means any. If the revision is in the future, it waits as NotOlderThan does.
// It fails with *storage.CompactedError if the store has compacted the revision, either here or when the view is read.
func (r *Resource) Exactly(ctx context.Context, revision int64) (*cache.View, error) {
	if revision <= 0 {
		return r.NotOlderThan(ctx, 0)
	}
	if err := r.reached(ctx, revision); err != nil {
		return nil, err
	}
	return r.cache.ViewAt(ctx, revision)
}

// Past is Exactly for a revision that the store may have compacted, but still keeps. The view may be read in one namespace
// only, unless that is "".
func (r *Resource) Past(ctx context.Context, revision int64, namespace string) (*cache.View, error) {
	if err := r.reached(ctx, revision); err != nil {
		return nil, err
	}
	return r.cache.ViewPast(ctx, revision, r.scope(namespace).Namespace)
}

// RevisionAt returns a revision at which the objects of a namespace ("" is all), or the object of a name, were as they were at t. It fails
// with *storage.CompactedError if that is not kept.
func (r *Resource) RevisionAt(ctx context.Context, namespace, name string, t time.Time) (int64, error) {
	history, ok := r.store.(storage.History)
	if !ok {
		return 0, ErrNoHistory
	}
	scope := r.scope(namespace)
	if name != "" {
		scope.Prefix = r.StoreKey(namespace, name)
	}
	return history.RevisionAt(ctx, scope, t)
}

// scope returns the keys of the resource in a namespace. Those of a resource without namespaces have none, although the request for a
// Namespace names it.
func (r *Resource) scope(namespace string) storage.Scope {
	if !r.Kind.Namespaced {
		namespace = ""
	}
	return storage.Scope{Prefix: r.prefix, Namespace: namespace}
}

// ErrNoHistory is the error of a read of the past from a store that knows no times.
var ErrNoHistory = errors.New("the store of the resource does not know what was written when")

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

// Recent returns a view that may lack the latest changes if the store has other writers, because it uses only the
// cache. If the store is not shared, it is the same as Current.
func (r *Resource) Recent(ctx context.Context) (*cache.View, error) {
	if storage.IsExclusive(r.store) {
		return r.Current(ctx)
	}
	return r.cache.View(ctx, 0)
}

// Watch returns a cursor to the changes after revision from. It fails with a *storage.CompactedError if the resource did
// not exist then.
func (r *Resource) Watch(ctx context.Context, from int64, in cache.Interest) (*cache.Cursor, error) {
	if since := r.Kind.Storage.Since; from < since {
		return nil, &storage.CompactedError{Revision: from, Compacted: since}
	}
	return r.cache.Watch(ctx, from, in)
}

// Decode makes the object of o, in the storage version. The caller owns it.
func (r *Resource) Decode(ctx context.Context, o *cache.Object) (Object, error) {
	if err := o.Err(); err != nil {
		return nil, kerrors.NewInternalError(err)
	}
	if batch, ok := r.codec.encoding.(batchEncoding); ok {
		if item, ok := cachedItem(o, batch.jsonID(r.codec.storage)); ok {
			return batch.decodeAsWritten(item)
		}
	}
	return r.codec.decode(ctx, o.Data)
}

// DecodeForWrite is Decode of an object that is about to be written again. It never uses a conversion that the cache
// has: if that lacks a field, because a webhook was wrong at the time, the write would delete the field in the store.
func (r *Resource) DecodeForWrite(ctx context.Context, o *cache.Object) (Object, error) {
	if err := o.Err(); err != nil {
		return nil, kerrors.NewInternalError(err)
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
			return nil, kerrors.NewBadRequest(
				fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", r.Kind.Name, v.Name, r.Kind.Name, err),
			)
		}
	}
	if v.ToStorage == nil {
		return obj, nil
	}
	return v.ToStorage(ctx, obj)
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

// Latest returns the latest version of an object, nil if there is none. It may be an unread object: see Readable.
func (r *Resource) Latest(ctx context.Context, namespace, name string) (*cache.Object, error) {
	return r.current(ctx, r.Key(namespace, name))
}

// LatestForDeletion is Latest of an object that is about to be deleted. Such reads do not bring the resource into memory.
func (r *Resource) LatestForDeletion(ctx context.Context, namespace, name string) (*cache.Object, error) {
	view, err := r.Current(ctx)
	if err != nil {
		return nil, err
	}
	o, _, err := view.GetForDeletion(ctx, r.Key(namespace, name))
	return o, err
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

// Size returns the number of objects, and how many bytes they take in memory, 0 if they are not in memory. ok is false
// if the number is not known.
func (r *Resource) Size() (objects int, bytes int64, ok bool) {
	if r.Virtual() {
		return 0, 0, false
	}
	stats := r.cache.Stats()
	return stats.Objects, stats.Bytes, stats.Counted
}

// Loaded reports whether all objects are in memory.
func (r *Resource) Loaded() bool { return !r.Virtual() && r.cache.Stats().Loaded }
