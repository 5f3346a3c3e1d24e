package registry

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// codec is the encoding of a kind together with the encryption of its values.
type codec struct {
	encoding
	storage *Version
	// transformer encrypts and decrypts values; nil stores them as they are.
	transformer Transformer
	// decodes counts the objects that were decoded from stored bytes.
	decodes atomic.Int64
	// conversions are the calls of a conversion webhook for ItemJSON that run now.
	conversions conversions
}

func newCodec(k *Kind) (*codec, error) {
	c := &codec{storage: k.Version(k.Storage.Version)}
	if c.storage == nil {
		return nil, fmt.Errorf("kind %s: storage version %q is not served", k.GroupKind(), k.Storage.Version)
	}
	c.encoding = newEncoding(k, c.storage, &c.decodes)
	return c, nil
}

// Read implements cache.Codec.
func (c *codec) Read(key string, value []byte, revision int64) (cache.Header, error) {
	plain, err := c.fromStore(context.Background(), key, value) // it does not wait
	if err != nil {
		return cache.Header{}, err
	}
	h, err := c.read(plain, revision)
	if err != nil {
		return cache.Header{}, fmt.Errorf("unable to read key %q: %w", key, err)
	}
	return h, nil
}

// Restamp implements cache.Codec.
func (c *codec) Restamp(data []byte, revision int64) ([]byte, error) {
	return c.restamp(data, revision)
}

// value returns the bytes to store for an object in the storage version. It removes the resourceVersion of obj.
func (c *codec) value(ctx context.Context, obj Object) ([]byte, error) {
	obj.SetResourceVersion("")
	return c.encode(ctx, obj)
}
