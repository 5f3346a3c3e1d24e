package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/cache"
)

// Transformer changes a resource's values on their way to the store and back
// (encryption at rest). Its methods may be called concurrently; key is the whole
// key in the store.
type Transformer interface {
	// ToStore returns what to store in place of plain.
	ToStore(ctx context.Context, key string, plain []byte) ([]byte, error)
	// FromStore returns the plain value. stale says that a write would store it
	// another way.
	FromStore(ctx context.Context, key string, value []byte) (plain []byte, stale bool, err error)
}

// Transform has the values of every resource go through what transformer returns
// for it; without it they are stored as they are. It must be called before the
// registry is used.
func (g *Registry) Transform(transformer func(schema.GroupResource) Transformer) {
	g.transformer = transformer
	for _, r := range g.list {
		r.codec.transformer = transformer(r.Kind.GroupResource())
	}
}

// encryptedPrefix begins the values that some transformer made.
const encryptedPrefix = "k8s:enc:"

var errEncrypted = errors.New("the value is encrypted, and no encryption is configured")

// fromStore returns the plain form of a stored value.
func (c *codec) fromStore(ctx context.Context, key string, value []byte) ([]byte, error) {
	var err error
	switch {
	case c.transformer != nil:
		value, _, err = c.transformer.FromStore(ctx, key, value)
	case bytes.HasPrefix(value, []byte(encryptedPrefix)):
		err = errEncrypted
	}
	if err != nil {
		return nil, fmt.Errorf("unable to transform key %q: %w", key, err)
	}
	return value, nil
}

// toStore returns the form of a plain value that is stored.
func (c *codec) toStore(ctx context.Context, key string, plain []byte) ([]byte, error) {
	if c.transformer == nil {
		return plain, nil
	}
	value, err := c.transformer.ToStore(ctx, key, plain)
	if err != nil {
		return nil, kerrors.NewInternalError(fmt.Errorf("unable to transform key %q: %w", key, err))
	}
	return value, nil
}

// stale says whether an object that a write would not change is to be written all
// the same, because it would be stored another way.
func (r *Resource) stale(ctx context.Context, found *cache.Object) (bool, error) {
	if r.codec.transformer == nil {
		return false, nil
	}
	key := r.prefix + found.Key
	e, _, err := r.store.Get(ctx, key, 0)
	if err != nil || e.ModRevision != found.Revision {
		// The write finds out about a change.
		return true, err
	}
	_, stale, err := r.codec.transformer.FromStore(ctx, key, e.Value)
	return stale, err
}

// Readable returns o, unless its stored value could not be read when it came to
// the cache. Then it tries again: a key may have been added, or a KMS provider may
// answer now. The error is an InternalError that names the key.
func (r *Resource) Readable(ctx context.Context, o *cache.Object) (*cache.Object, error) {
	if o.Err() == nil {
		return o, nil
	}
	e, _, err := r.store.Get(ctx, r.prefix+o.Key, o.Revision)
	if err != nil {
		return nil, err
	}
	if e.ModRevision != o.Revision {
		return nil, kerrors.NewInternalError(o.Err())
	}
	again, err := r.objectOf(o.Key, e.Value, e.ModRevision)
	if err != nil {
		return nil, err
	}
	again.CreateRevision = o.CreateRevision
	return again, nil
}

// Unreadable says that some object could not be read: indexes may lack it.
func (r *Resource) Unreadable() bool { return r.codec.unreadable.Load() }
