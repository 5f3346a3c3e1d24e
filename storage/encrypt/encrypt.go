// Package encrypt is encryption at rest: values are encrypted on their way to the
// store and decrypted on their way back, as an EncryptionConfiguration says
// (https://kubernetes.io/docs/tasks/administer-cluster/encrypt-data/). Prefixes and
// formats are those of kube-apiserver, so that each reads what the other wrote.
package encrypt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keelson-dev/keelson/storage"
)

// Transformer changes values on their way to the store and back. Its methods may
// be called concurrently. Neither keeps nor changes its arguments; results may
// share memory with them.
type Transformer interface {
	// ToStore returns what to store in place of plain. The authenticated data is
	// the value's key: a value that was copied to another key cannot be read.
	ToStore(ctx context.Context, authenticated, plain []byte) ([]byte, error)
	// FromStore returns the plain value. stale says that ToStore would not store
	// it that way any more: with another provider, or another key. It never waits
	// for another program: where one has to be asked first, the error is a
	// *storage.PendingError.
	FromStore(ctx context.Context, authenticated, value []byte) (plain []byte, stale bool, err error)
}

// encryptedPrefix begins every encrypted value.
const encryptedPrefix = "k8s:enc:"

// Prefixes of the providers. What follows is the name of the key, or of the
// plug-in, and a colon.
const (
	prefixCBC       = encryptedPrefix + "aescbc:v1:"
	prefixGCM       = encryptedPrefix + "aesgcm:v1:"
	prefixSecretbox = encryptedPrefix + "secretbox:v1:"
	prefixKMSv2     = encryptedPrefix + "kms:v2:"
)

var errEncrypted = errors.New("identity transformer tried to read encrypted data")

// Identity stores values as they are. It does not take encrypted ones for plain.
var Identity Transformer = identity{}

type identity struct{}

func (identity) ToStore(_ context.Context, _, plain []byte) ([]byte, error) { return plain, nil }

func (identity) FromStore(_ context.Context, _, value []byte) ([]byte, bool, error) {
	if bytes.HasPrefix(value, []byte(encryptedPrefix)) {
		return nil, false, errEncrypted
	}
	return value, false, nil
}

// prefixed is a transformer whose values begin with prefix.
type prefixed struct {
	prefix string
	Transformer
}

// chain reads with any of its transformers and writes with the first.
type chain struct {
	list    []prefixed
	none    error    // no prefix fits
	metrics *Metrics // nil: nothing is counted
}

func (c chain) ToStore(ctx context.Context, authenticated, plain []byte) ([]byte, error) {
	began, first := time.Now(), c.list[0]
	out, err := first.ToStore(ctx, authenticated, plain)
	c.metrics.transformed(ctx, toStorage, first.prefix, began, err)
	if err != nil || first.prefix == "" {
		return out, err
	}
	return append([]byte(first.prefix), out...), nil
}

func (c chain) FromStore(ctx context.Context, authenticated, value []byte) ([]byte, bool, error) {
	began := time.Now()
	var errs []error
	for i, t := range c.list {
		rest, ok := bytes.CutPrefix(value, []byte(t.prefix))
		if !ok {
			continue
		}
		plain, stale, err := t.FromStore(ctx, authenticated, rest)
		var pending *storage.PendingError
		if errors.As(err, &pending) {
			// Neither done nor failed: what is counted is how asking for it ends.
			errs = append(errs, c.counted(ctx, t.prefix, pending))
			continue
		}
		if t.prefix != "" {
			c.metrics.transformed(ctx, fromStorage, t.prefix, began, err)
		} else if err == nil {
			c.metrics.transformed(ctx, fromStorage, "identity", began, nil)
		}
		switch {
		case err == nil:
			return plain, stale || i != 0, nil
		case t.prefix == "": // an encrypted value is not for identity, but may be for a later one
		default:
			errs = append(errs, err)
		}
	}
	switch len(errs) {
	case 0:
		c.metrics.transformed(ctx, fromStorage, "unknown", began, c.none)
		return nil, false, c.none
	case 1:
		return nil, false, errs[0]
	}
	return nil, false, fmt.Errorf("none of the keys fits: %w", errors.Join(errs...))
}

// counted returns pending with an Obtain that counts its failures as those of reading a
// value. labels is the context that names the resource to the metrics.
func (c chain) counted(labels context.Context, prefix string, pending *storage.PendingError) error {
	return &storage.PendingError{Need: pending.Need, Obtain: func(ctx context.Context) error {
		began := time.Now()
		err := pending.Obtain(ctx)
		if err != nil {
			c.metrics.transformed(labels, fromStorage, prefix, began, err)
		}
		return err
	}}
}
