package registry

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Root is the key prefix of everything the server stores.
const Root = "/registry/"

// Resource is a kind bound to a store and to the cache on it. It has five parts, each for one use of the objects. Code that
// needs one part takes that part. All methods may be called concurrently.
type Resource struct {
	Kind *Kind
	// Reader finds objects: now, at a revision, and as they change. Past finds earlier states, also of deleted
	// objects.
	Reader *Reader
	Past   *Past
	// Decoder decodes the objects that Reader and Past return. Renderer makes the bytes of responses from them.
	Decoder  *Decoder
	Renderer *Renderer
	// Writer changes what is stored.
	Writer *Writer

	*bound
	all *cache.Cache
	now func() time.Time
	// cacheReader reads the state of the cache for the metrics.
	cacheReader cache.CacheReader
}

// bound is what the parts of a resource share: where its objects are, and how they are encoded.
type bound struct {
	kind  *Kind
	codec *codec
	store storage.Store
	whole storage.Store // store, or that of which it is a part
	// cache is nil for a kind that stores nothing.
	cache *cache.Resource
	// metrics record how the resource is stored and read; nil records nothing.
	metrics *cache.Stored
	// prefix is the storage key of the collection, ended by a slash.
	prefix string
	// lastWrite is the revision of the last write of this process.
	lastWrite atomic.Int64
}

func newResource(k *Kind, on Backend, now func() time.Time) (*Resource, error) {
	codec, err := newCodec(k)
	if err != nil {
		return nil, err
	}
	b := &bound{
		kind: k, codec: codec, store: on.Store, whole: on.Whole, metrics: on.Metrics.Resource(k.Group, k.Resource),
		prefix: Root + k.Storage.Path + "/",
	}
	if b.whole == nil {
		b.whole = b.store
	}
	reader, decoder := &Reader{bound: b, all: on.Cache}, &Decoder{b}
	renderer := &Renderer{bound: b, decoder: decoder, indexes: k.Selection.indexed()}
	history, _ := on.Store.(storage.History)
	r := &Resource{
		Kind: k, Reader: reader, Decoder: decoder, Renderer: renderer, Past: &Past{bound: b, reader: reader, history: history},
		Writer: &Writer{bound: b, reader: reader, renderer: renderer, keepsAuthors: history != nil},
		bound:  b, all: on.Cache, now: now,
	}
	if k.Storage.Path != "" {
		b.cache = on.Cache.Resource(cache.Config{
			Resource: k.GroupResource().String(), Prefix: b.prefix,
			Namespaced: k.Namespaced, Indexes: renderer.indexNames(), Codec: codec, Metrics: b.metrics,
		})
		r.cacheReader = reader.cacheState
		b.metrics.Follow(&r.cacheReader)
	}
	return r, nil
}

// Virtual reports whether the kind has no stored objects (reviews, bindings).
func (r *Resource) Virtual() bool { return r.cache == nil }

// Metrics returns what records how the resource is stored and read; nil records nothing.
func (r *Resource) Metrics() *cache.Stored { return r.metrics }

// Now returns the time of the clock of API objects.
func (r *Resource) Now() time.Time { return r.now() }

// Store is where the resource's objects are.
func (r *Resource) Store() storage.Store { return r.store }

// Key is an object's key below the resource's prefix.
func (r *Resource) Key(namespace, name string) string { return r.key(namespace, name) }

// StoreKey is the key of an object in the store.
func (r *Resource) StoreKey(namespace, name string) string { return r.prefix + r.key(namespace, name) }

func (b *bound) key(namespace, name string) string {
	if b.kind.Namespaced {
		return namespace + "/" + name
	}
	return name
}

// scope returns the keys of the resource in a namespace. It ignores the namespace if the resource has no
// namespaces: a request for a Namespace also names one.
func (b *bound) scope(namespace string) storage.Scope {
	if !b.kind.Namespaced {
		namespace = ""
	}
	return storage.Scope{Prefix: b.prefix, Namespace: namespace}
}

// objectOf makes a cache object from a stored value. If the value cannot be read yet, for
// example because a KMS plug-in has to be asked, it waits for that.
func (b *bound) objectOf(ctx context.Context, key string, value []byte, revision int64) (*cache.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, readableWait)
	defer cancel()
	var h cache.Header
	err := storage.RetryPending(ctx, func() (err error) {
		h, err = b.codec.Read(b.prefix+key, value, revision)
		return err
	})
	if err != nil {
		return nil, kerrors.NewInternalError(err)
	}
	return objectAt(key, revision, h), nil
}

// plainObject makes a cache object of a plain value.
func (b *bound) plainObject(key string, value []byte, revision int64) (*cache.Object, error) {
	h, err := b.codec.read(value, revision)
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
