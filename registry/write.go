package registry

import (
	"context"
	"strconv"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/scheme"
	"github.com/keelson-dev/keelson/scheme/wire"
	"github.com/keelson-dev/keelson/storage"
)

// Result is what a write left behind.
type Result struct {
	// Object is the object as it is (or, for a dry run, would be) stored; of a
	// deletion as it was last.
	Object *cache.Object
	// Created says that an update made a new object, Deleted that the object is
	// gone.
	Created, Deleted bool
	// item is the JSON in the storage version where the write made it anyway.
	item []byte
}

// Admit is called with the object as it would be stored, before it is; an error
// refuses the write. old is nil on create.
type Admit func(ctx context.Context, obj, old Object) error

func (r *Resource) groupResource(group string) schema.GroupResource {
	gr := r.Kind.GroupResource()
	if group != "" {
		gr.Group = group
	}
	return gr
}

// put is the operation that stores a plain value.
func (r *Resource) put(ctx context.Context, key string, plain []byte) (storage.Op, error) {
	value, err := r.codec.toStore(ctx, r.prefix+key, plain)
	return storage.Put(r.prefix+key, value), err
}

// preview makes the JSON of a plain value that is about to be stored, in the storage version and without
// the resourceVersion that it will have: what cannot be shown is not stored. It is nil
// where values are stored as they are served.
func (r *Resource) preview(value []byte) ([]byte, error) {
	if r.codec.storedAsServed() {
		return nil, nil
	}
	data, err := r.codec.plain(value)
	if err != nil {
		return nil, err
	}
	obj, err := r.codec.decode(data)
	if err != nil {
		return nil, err
	}
	return scheme.EncodeItem(obj)
}

// written makes the result of a committed plain value of which preview returned item, and hands its JSON to
// the cache: the client is likely to have asked for it.
func (r *Resource) written(key string, value, item []byte, revision int64) (Result, error) {
	o, err := r.plainObject(key, value, revision)
	if err != nil {
		return Result{}, err
	}
	result := Result{Object: o}
	if item != nil {
		if result.item, err = wire.StampJSON(item, revision); err != nil {
			return Result{}, err
		}
		r.cache.Offer(key, revision, FormJSON, result.item)
	}
	return result, nil
}

// objectOf makes a cache object of a stored value. It waits for what the value needs to
// be read.
func (r *Resource) objectOf(ctx context.Context, key string, value []byte, revision int64) (*cache.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, readableWait)
	defer cancel()
	var h cache.Header
	err := storage.Waiting(ctx, func() (err error) {
		h, err = r.codec.Read(r.prefix+key, value, revision)
		return err
	})
	if err != nil {
		return nil, kerrors.NewInternalError(err)
	}
	return objectAt(key, revision, h), nil
}

// plainObject makes a cache object of a plain value.
func (r *Resource) plainObject(key string, value []byte, revision int64) (*cache.Object, error) {
	h, err := r.codec.read(value, revision)
	if err != nil {
		return nil, err
	}
	return objectAt(key, revision, h), nil
}

func objectAt(key string, revision int64, h cache.Header) *cache.Object {
	o := &cache.Object{Key: key, Name: key, Revision: revision, Labels: h.Labels, Fields: h.Fields, Data: h.Data}
	if i := strings.IndexByte(key, '/'); i >= 0 {
		o.Namespace, o.Name = key[:i], key[i+1:]
	}
	return o
}

// dryResult is the result of a write that is not done.
func (r *Resource) dryResult(key string, obj Object) (Result, error) {
	version := obj.GetResourceVersion()
	revision, _ := strconv.ParseInt(version, 10, 64)
	value, err := r.codec.encode(obj)
	if err != nil {
		return Result{}, err
	}
	o, err := r.plainObject(key, value, revision)
	if err != nil {
		return Result{}, err
	}
	if revision == 0 {
		// Read stamps every object; this one was never stored. It shows what the
		// client sent, which need not be a number.
		if version != "" {
			obj.SetResourceVersion(version)
			if value, err = r.codec.encodeWhole(obj); err != nil {
				return Result{}, err
			}
		}
		if o.Data, err = r.codec.unstamped(value); err != nil {
			return Result{}, err
		}
	}
	item, err := r.encodeItem(o, r.codec.storage)
	return Result{Object: o, item: item}, err
}

// Computed makes a cache object of one that is stored nowhere, of a virtual kind.
func (r *Resource) Computed(obj Object) (*cache.Object, error) {
	result, err := r.dryResult(r.Key(obj.GetNamespace(), obj.GetName()), obj)
	return result.Object, err
}

// ResultJSON returns the item JSON of a result in version v.
func (r *Resource) ResultJSON(res Result, v *Version) ([]byte, error) {
	if res.item != nil && r.stored(v) {
		return res.item, nil
	}
	return r.encodeItem(res.Object, v)
}
