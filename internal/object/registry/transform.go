package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/storage"
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

// Transform makes the values of every resource go through the Transformer that transformer returns for it. Without
// Transform, values are stored as they are. It must be called before the registry is used.
func (re *Registry) Transform(transformer func(schema.GroupResource) Transformer) {
	re.transformer = transformer
	for _, r := range re.list {
		r.codec.transformer = transformer(r.Kind.GroupResource())
	}
}

// encryptedPrefix begins the values that some transformer made.
const encryptedPrefix = "k8s:enc:"

// ErrEncrypted is the error of an encrypted value if Transform was not called.
var ErrEncrypted = errors.New("the value is encrypted, and no encryption is configured")

// TransformError is the error of a value that could not be transformed: it cannot be decrypted with the configured keys.
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
		err = ErrEncrypted
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

// versionHead returns the beginning of the stored values of a kind if the data of an object does not show in which
// version it is stored. It is nil for kinds that are stored as JSON, and for those that have only one version.
func (c *codec) versionHead() []byte {
	if e, ok := c.encoding.(*protobufEncoding); ok && len(e.kind.Versions) > 1 {
		return e.envelope
	}
	return nil
}
