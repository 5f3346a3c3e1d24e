package serviceaccount

import (
	"context"
	"crypto"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// publishedAge is for how long relying parties may keep the documents about keys of
// files.
const publishedAge = time.Hour

// PublicKey is a key that tokens are verified with.
type PublicKey struct {
	ID        string
	Key       crypto.PublicKey
	Algorithm jose.SignatureAlgorithm
	// Unpublished keys verify tokens, but relying parties are not told of them.
	Unpublished bool
}

// NewPublicKey returns an RSA or ECDSA key under an ID. Others are an error.
func NewPublicKey(id string, key crypto.PublicKey) (PublicKey, error) {
	alg, err := algorithmOf(key)
	return PublicKey{ID: id, Key: key, Algorithm: alg}, err
}

// Equal says whether another key is the same one, whatever its ID.
func (k PublicKey) Equal(other PublicKey) bool {
	same, ok := k.Key.(interface{ Equal(crypto.PublicKey) bool }) // those of the standard library are
	return ok && same.Equal(other.Key)
}

// IsAlgorithm says whether a signature of that name is one of service account
// tokens.
func IsAlgorithm(name string) bool { return slices.Contains(algorithms, jose.SignatureAlgorithm(name)) }

// KeySource is what tokens are signed and verified with. It is used concurrently;
// the slices that it returns are not changed.
type KeySource interface {
	// Known returns the keys that a token with that key ID may have been signed with,
	// those of all IDs for "". None is no error. It may ask another program, until ctx
	// ends.
	Known(ctx context.Context, id string) []PublicKey
	// Sign returns the token, in its compact form, of a payload.
	Sign(ctx context.Context, payload []byte) (string, error)
	// Published returns the keys that relying parties are told of, and for how long
	// they may keep the answer.
	Published() ([]PublicKey, time.Duration, error)
	// Generation is another number whenever keys were withdrawn: what was verified
	// before is verified again.
	Generation() uint64
}
