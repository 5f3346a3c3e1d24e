// Package encrypt is encryption at rest: values are encrypted before they are stored and decrypted after they are read,
// as an EncryptionConfiguration demands (https://kubernetes.io/docs/tasks/administer-cluster/encrypt-data/). Prefixes
// and formats are those of kube-apiserver, so that Keelson and kube-apiserver can read each other's values.
//
// An Encryption is a configuration file in use; its method Resource returns the transformer of one resource. A
// Transformer encrypts and decrypts values. There are transformers for AES-CBC, AES-GCM and Secretbox (cipher.go), for
// KMS v2 plug-ins (kms.go and envelope.go), and for plain values (Identity). A chain combines the providers of one
// entry of the configuration: it writes with the first one and reads with all.
//
// Example: with the providers aescbc (keys k2, k1) and identity, a Secret is stored as k8s:enc:aescbc:v1:k2:DATA. A
// value that begins with k8s:enc:aescbc:v1:k1: is decrypted with k1 and reported as stale, because a write would use
// k2. A plain value is read by identity and is stale, too.
//
// Order of the files: encrypt.go, config.go (the file), providers.go (transformers of a configuration), cipher.go,
// kms.go, envelope.go, encryption.go (use and reload), metrics.go.
package encrypt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
)

// Transformer encrypts and decrypts values. Its methods may be called concurrently. They do not change their
// arguments and do not use them after they return; results may share memory with the arguments.
type Transformer interface {
	// ToStore returns the value to store for plain. authenticated is the key in the store. Most transformers
	// authenticate this key together with the value, so that a value that was copied to another key cannot be
	// decrypted.
	ToStore(ctx context.Context, authenticated, plain []byte) ([]byte, error)
	// FromStore returns the plain value. stale is true if ToStore would now use another provider or another key. FromStore
	// never waits for another program: if one must be called first, the error is a *storage.PendingError.
	FromStore(ctx context.Context, authenticated, value []byte) (plain []byte, stale bool, err error)
}

// encryptedPrefix is the beginning of every encrypted value.
const encryptedPrefix = "k8s:enc:"

// Prefixes of the providers. The name of the key or of the plug-in follows, and then a colon.
const (
	prefixCBC       = encryptedPrefix + "aescbc:v1:"
	prefixGCM       = encryptedPrefix + "aesgcm:v1:"
	prefixSecretbox = encryptedPrefix + "secretbox:v1:"
	prefixKMSv2     = encryptedPrefix + "kms:v2:"
)

var errEncrypted = errors.New("identity transformer tried to read encrypted data")

// Identity stores values unencrypted. It refuses to read encrypted values.
var Identity Transformer = identity{}

type identity struct{}

func (identity) ToStore(_ context.Context, _, plain []byte) ([]byte, error) { return plain, nil }

func (identity) FromStore(_ context.Context, _, value []byte) ([]byte, bool, error) {
	if bytes.HasPrefix(value, []byte(encryptedPrefix)) {
		return nil, false, errEncrypted
	}
	return value, false, nil
}

// prefixed is a transformer with the prefix of its values.
type prefixed struct {
	prefix string
	Transformer
}

// chain reads with every transformer whose prefix matches and writes with the first one.
type chain struct {
	list       []prefixed
	errNoMatch error    // error if no prefix matches
	metrics    *Metrics // nil counts nothing
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

// FromStore tries every transformer whose prefix matches, because two providers may have keys of the same name. If none
// succeeds, it returns their errors.
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
			// The read has neither succeeded nor failed yet. The call of Obtain counts a failure.
			errs = append(errs, c.countFailures(ctx, t.prefix, pending))
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
		case t.prefix == "": // identity refuses encrypted values; a later transformer may read them
		default:
			errs = append(errs, err)
		}
	}
	switch len(errs) {
	case 0:
		c.metrics.transformed(ctx, fromStorage, "unknown", began, c.errNoMatch)
		return nil, false, c.errNoMatch
	case 1:
		return nil, false, errs[0]
	}
	return nil, false, fmt.Errorf("none of the keys fits: %w", errors.Join(errs...))
}

// countFailures returns pending with an Obtain whose failures are counted as failed reads of a value. labels is the
// context that contains the resource for the metrics.
func (c chain) countFailures(labels context.Context, prefix string, pending *storage.PendingError) error {
	return &storage.PendingError{Need: pending.Need, Obtain: func(ctx context.Context) error {
		began := time.Now()
		err := pending.Obtain(ctx)
		if err != nil {
			c.metrics.transformed(labels, fromStorage, prefix, began, err)
		}
		return err
	}}
}
