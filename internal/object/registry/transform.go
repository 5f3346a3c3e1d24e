package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Transformer changes a resource's values on their way to the store and back
// (encryption at rest). Its methods may be called concurrently; key is the whole
// key in the store.
type Transformer interface {
	// ToStore returns the value to store for plain.
	ToStore(ctx context.Context, key string, plain []byte) ([]byte, error)
	// FromStore returns the plain value. stale means that a write would store it differently. It never waits for
	// another program: if one is needed, the error is a *storage.PendingError.
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

// TransformError is the error of a value that could not be transformed: it cannot be decrypted with the keys that there are.
type TransformError struct {
	Key string // in the store
	Err error
}

// Error implements error.
func (e *TransformError) Error() string {
	return fmt.Sprintf("unable to transform key %q: %v", e.Key, e.Err)
}

// Unwrap returns what is wrong with the value.
func (e *TransformError) Unwrap() error { return e.Err }

// keyError returns the error for a value under key that could not be transformed.
func keyError(key string, err error) error { return &TransformError{Key: key, Err: err} }

// fromStore returns the plain form of a stored value. It does not wait.
func (c *codec) fromStore(ctx context.Context, key string, value []byte) ([]byte, error) {
	var err error
	switch {
	case c.transformer != nil:
		value, _, err = c.transformer.FromStore(ctx, key, value)
	case bytes.HasPrefix(value, []byte(encryptedPrefix)):
		err = errEncrypted
	}
	var pending *storage.PendingError
	switch {
	case err == nil:
		return value, nil
	case errors.As(err, &pending):
		err = &storage.PendingError{Need: pending.Need, Obtain: func(ctx context.Context) error {
			if err := pending.Obtain(ctx); err != nil {
				return keyError(key, err)
			}
			return nil
		}}
	}
	return nil, keyError(key, err)
}

// toStore returns the form of a plain value that is stored.
func (c *codec) toStore(ctx context.Context, key string, plain []byte) ([]byte, error) {
	if c.transformer == nil {
		return plain, nil
	}
	value, err := c.transformer.ToStore(ctx, key, plain)
	if err != nil {
		return nil, kerrors.NewInternalError(keyError(key, err))
	}
	return value, nil
}

// stale reports whether an object must be written although nothing has changed, because it would be stored differently: with
// another key, or in another version.
func (r *Resource) stale(ctx context.Context, found *cache.Object, value []byte) (bool, error) {
	head := r.codec.versionHead()
	custom, compares := r.codec.encoding.(*unstructuredEncoding)
	compares = compares && !custom.documents.IsNormal(found.Revision)
	if r.codec.transformer == nil && head == nil && !compares {
		return false, nil
	}
	key := r.prefix + found.Key
	start := time.Now()
	e, _, err := r.store.Get(ctx, key, 0)
	r.metrics.Request(cache.GetOperation, start, err)
	if err != nil || e.ModRevision != found.Revision {
		// The write finds out about a change.
		return true, err
	}
	plain, stale := e.Value, false
	if r.codec.transformer != nil {
		err = storage.RetryPending(ctx, func() (err error) {
			plain, stale, err = r.codec.transformer.FromStore(ctx, key, e.Value)
			return err
		})
	}
	if err == nil && compares && !stale {
		// What is stored may lack defaults, or have fields that the schema does not have any more.
		same, err := sameDocument(plain, value)
		return !same, err
	}
	return stale || err == nil && !bytes.HasPrefix(plain, head), err
}

// versionHead returns the beginning of the values of a kind whose stored version cannot be seen in the data of an object. It is
// nil for other kinds: those that are stored as JSON, and those that have one version only.
func (c *codec) versionHead() []byte {
	if e, ok := c.encoding.(*protobufEncoding); ok && len(e.kind.Versions) > 1 {
		return e.envelope
	}
	return nil
}

// readableWait bounds how long a request or a watch waits for what one object needs to
// be read. Most often the plug-in's own limit, three seconds, comes first.
const readableWait = 10 * time.Second

// Readable returns o, unless its stored value could not be read when it came to the
// cache. Then it tries again, and waits for the KMS provider if that has to be asked: a
// key may have been added, or the provider may answer now. The error is an
// InternalError that names the key.
func (r *Resource) Readable(ctx context.Context, o *cache.Object) (*cache.Object, error) {
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
func (r *Resource) Unreadable() bool { return r.cache.Unread() > 0 }
