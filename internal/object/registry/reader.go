package registry

import (
	"context"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Reader finds the objects of a resource: in a view of all of them, one by one, or as they change.
type Reader struct {
	*bound
	all *cache.Cache
}

// maxFutureWait bounds how long a read waits for a resourceVersion that has not
// happened yet, as kube-apiserver does.
const maxFutureWait = 3 * time.Second

// readableWait limits the time that a request or a watch waits until one object can be
// read, for example for a KMS plug-in. The plug-in's own limit is usually three seconds.
const readableWait = 10 * time.Second

// Current returns a view that reflects every write acknowledged before the call.
func (r *Reader) Current(ctx context.Context) (*cache.View, error) {
	return r.cache.View(ctx, cache.Latest)
}

// CurrentRevision returns the revision of the latest write to any resource that was acknowledged before the call.
func (r *Reader) CurrentRevision(ctx context.Context) (int64, error) { return r.all.Current(ctx) }

// NotOlderThan returns a view at or after revision; 0 is any. A revision that does
// not come within three seconds is a TooLargeVersion error.
func (r *Reader) NotOlderThan(ctx context.Context, revision int64) (*cache.View, error) {
	if err := r.reached(ctx, revision); err != nil {
		return nil, err
	}
	return r.cache.View(ctx, revision)
}

// Exactly returns the view at revision; 0 means any. If the revision is in the future, it waits as NotOlderThan does.
// It fails with *storage.CompactedError if the store has compacted the revision, either here or when the view is read.
func (r *Reader) Exactly(ctx context.Context, revision int64) (*cache.View, error) {
	if revision <= 0 {
		return r.NotOlderThan(ctx, 0)
	}
	if err := r.reached(ctx, revision); err != nil {
		return nil, err
	}
	return r.cache.ViewAt(ctx, revision)
}

// Recent returns a view that may lack the latest changes if the store has other writers, because it uses only the
// cache. If the store is not shared, it is the same as Current.
func (r *Reader) Recent(ctx context.Context) (*cache.View, error) {
	if storage.IsExclusive(r.store) {
		return r.Current(ctx)
	}
	return r.cache.View(ctx, 0)
}

// reached waits for a revision, for three seconds at most.
func (r *Reader) reached(ctx context.Context, revision int64) error {
	if r.all.Applied() >= revision {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxFutureWait)
	defer cancel()
	return r.all.Await(ctx, revision)
}

// All calls yield with all objects of a namespace ("" means all namespaces), in the order of their keys, until
// yield returns false. The objects have all writes that were acknowledged before the call.
func (r *Reader) All(ctx context.Context, namespace string, yield func(*cache.Object) bool) error {
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

// Watch returns a cursor to the changes after revision from. It fails with a *storage.CompactedError if the resource did
// not exist then.
func (r *Reader) Watch(ctx context.Context, from int64, in cache.Interest) (*cache.Cursor, error) {
	if since := r.kind.Storage.Since; from < since {
		return nil, &storage.CompactedError{Revision: from, Compacted: since}
	}
	return r.cache.Watch(ctx, from, in)
}

// Latest returns the latest version of an object, nil if there is none. It may be an unread object: see Readable.
func (r *Reader) Latest(ctx context.Context, namespace, name string) (*cache.Object, error) {
	return r.current(ctx, r.key(namespace, name))
}

// LatestForDeletion is Latest of an object that is about to be deleted. Such reads do not bring the resource into memory.
func (r *Reader) LatestForDeletion(ctx context.Context, namespace, name string) (*cache.Object, error) {
	view, err := r.Current(ctx)
	if err != nil {
		return nil, err
	}
	o, _, err := view.GetForDeletion(ctx, r.key(namespace, name))
	return o, err
}

// current is Latest of the object with a key.
func (r *Reader) current(ctx context.Context, key string) (*cache.Object, error) {
	view, err := r.Current(ctx)
	if err != nil {
		return nil, err
	}
	o, _, err := view.Get(ctx, key)
	return o, err
}

// find returns the latest version of an object.
func (r *Reader) find(ctx context.Context, namespace, name string) (*cache.Object, error) {
	o, err := r.current(ctx, r.key(namespace, name))
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, apierr.NotFound(r.kind.GroupResource(), name)
	}
	return r.Readable(ctx, o)
}

// lookup finds an object in a state that has every change that this process has acknowledged: first in the cache, then
// in the store. It returns nil if there is none.
func (r *Reader) lookup(ctx context.Context, key string) (*cache.Object, error) {
	view, err := r.cache.View(ctx, r.LastWrite())
	if err != nil {
		return nil, err
	}
	o, _, err := view.Get(ctx, key)
	if err == nil && o == nil && view.Loaded() {
		o, err = r.current(ctx, key)
	}
	if err != nil || o == nil {
		return nil, err
	}
	return r.Readable(ctx, o)
}

// LastWrite returns the revision of the last write of the resource that this process has committed, 0 if there was
// none. It is noted before the write is acknowledged.
func (r *Reader) LastWrite() int64 { return r.lastWrite.Load() }

// Readable returns o, unless its stored value could not be read when it came to the
// cache. Then it tries again, and waits for the KMS provider if that has to be asked: a
// key may have been added, or the provider may answer now. The error is an
// InternalError that names the key.
func (r *Reader) Readable(ctx context.Context, o *cache.Object) (*cache.Object, error) {
	if o.Err() == nil {
		return o, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readableWait)
	defer cancel()
	readable, err := r.cache.Readable(ctx, o)
	if err != nil {
		return nil, kerrors.NewInternalError(err)
	}
	return readable, nil
}

// Unreadable reports whether some object in memory cannot be read now.
func (r *Reader) Unreadable() bool { return r.cache.Unread() > 0 }

// Counted returns the number of objects if that is known: if the resource is in use.
func (r *Reader) Counted() (objects int, ok bool) {
	if r.cache == nil {
		return 0, false
	}
	stats := r.cache.Stats()
	return stats.Objects, stats.Counted
}

// Size returns the number of objects, and how many bytes they take in memory, 0 if they are not in memory. ok is false
// if the number is not known.
func (r *Reader) Size() (objects int, bytes int64, ok bool) {
	if r.cache == nil {
		return 0, 0, false
	}
	stats := r.cache.Stats()
	return stats.Objects, stats.Bytes, stats.Counted
}

// Loaded reports whether all objects are in memory.
func (r *Reader) Loaded() bool { return r.cache != nil && r.cache.Stats().Loaded }

// cacheState returns the state of the cache for metrics.
func (r *Reader) cacheState() cache.CacheState {
	s := r.cache.Stats()
	return cache.CacheState{
		Followed: s.Followed, Loaded: s.Loaded, Revision: s.Revision, Bytes: s.Bytes, Events: s.Events,
		LogBytes: s.WindowBytes, Cursors: s.Cursors, Interests: s.Interests, Loads: s.Loads,
	}
}
