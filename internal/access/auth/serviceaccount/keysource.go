package serviceaccount

import (
	"context"
	"crypto"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// publishedMaxAge is the time for which relying parties may cache the documents about keys from files.
const publishedMaxAge = time.Hour

// PublicKey is a key to verify tokens with.
type PublicKey struct {
	ID        string
	Key       crypto.PublicKey
	Algorithm jose.SignatureAlgorithm
	// Unpublished keys verify tokens, but are not in the documents for relying parties.
	Unpublished bool
}

// NewPublicKey returns an RSA or ECDSA key with an ID. Other types of keys are an error.
func NewPublicKey(id string, key crypto.PublicKey) (PublicKey, error) {
	alg, err := algorithmOf(key)
	return PublicKey{ID: id, Key: key, Algorithm: alg}, err
}

// Equal reports whether both are the same key. IDs are not compared.
func (k PublicKey) Equal(other PublicKey) bool {
	same, ok := k.Key.(interface{ Equal(crypto.PublicKey) bool }) // all keys of the standard library have this method
	return ok && same.Equal(other.Key)
}

// IsAlgorithm reports whether name is a signature algorithm of service account tokens.
func IsAlgorithm(name string) bool { return slices.Contains(algorithms, jose.SignatureAlgorithm(name)) }

// KeySource signs tokens and has the keys to verify them. It is used concurrently. The slices
// that it returns must not be changed.
type KeySource interface {
	// VerificationKeys returns the keys with that ID, or all keys if id is "". It returns
	// none if there is no such key. It may call an external program, until ctx is done.
	VerificationKeys(ctx context.Context, id string) []PublicKey
	// Sign returns the signed token with that payload, in compact form.
	Sign(ctx context.Context, payload []byte) (string, error)
	// PublishedKeys returns the keys for relying parties, and how long they may be cached.
	PublishedKeys() ([]PublicKey, time.Duration, error)
	// Generation changes whenever a key was withdrawn. Signatures that were verified before
	// have to be verified again.
	Generation() uint64
}
