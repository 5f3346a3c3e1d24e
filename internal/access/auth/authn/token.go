package authn

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// ErrInvalidToken means that no authenticator accepts a bearer token.
var ErrInvalidToken = errors.New("invalid bearer token")

// BearerToken is a token with its SHA-256 hash, which is computed once. Caches are keyed by
// the hash, so that they do not contain tokens.
type BearerToken struct {
	Text string
	Hash [sha256.Size]byte
}

// stackBuffer is the longest token, in bytes, that is hashed without allocating memory.
const stackBuffer = 2048

// NewBearerToken returns a token with its hash.
func NewBearerToken(text string) BearerToken {
	var onStack [stackBuffer]byte
	return BearerToken{Text: text, Hash: sha256.Sum256(append(onStack[:0], text...))}
}

// Identity is the result of authenticating a token.
type Identity struct {
	// User is a member of system:authenticated. It is shared and must not be changed.
	User *request.User
	// Audiences are the requested audiences for which the token is valid.
	Audiences []string
}

// TokenAuthenticator finds the user of a bearer token that is valid for at least one of the
// audiences. It returns nil and no error for a token that is not of the kind that it handles,
// and an error for one of that kind that is not valid. Errors must not contain the token.
// AuthenticateToken is called concurrently.
type TokenAuthenticator interface {
	AuthenticateToken(ctx context.Context, t BearerToken, audiences []string) (*Identity, error)
}

// TokenUnion calls the authenticators in order and returns the first identity. If no
// authenticator returns an identity, it returns all their errors.
type TokenUnion []TokenAuthenticator

// AuthenticateToken implements TokenAuthenticator.
func (u TokenUnion) AuthenticateToken(ctx context.Context, t BearerToken, audiences []string) (*Identity, error) {
	var failed []error
	for _, a := range u {
		identity, err := a.AuthenticateToken(ctx, t, audiences)
		if identity != nil {
			return identity, nil
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return nil, utilerrors.NewAggregate(failed)
}

// AudienceAgnosticAuthenticator finds the user of a bearer token without audiences. The rules for its results are those
// of TokenAuthenticator. The user is a member of system:authenticated.
type AudienceAgnosticAuthenticator interface {
	UserOfToken(ctx context.Context, t BearerToken) (*request.User, error)
}

// WrapAudienceAgnostic returns a TokenAuthenticator that treats the tokens of users as valid
// for the audiences own, which are the API server's.
func WrapAudienceAgnostic(own []string, users AudienceAgnosticAuthenticator) TokenAuthenticator {
	return &audienceAgnostic{apiAudiences: own, users: users}
}

type audienceAgnostic struct {
	apiAudiences []string
	users        AudienceAgnosticAuthenticator
}

func (a *audienceAgnostic) AuthenticateToken(
	ctx context.Context, t BearerToken, audiences []string,
) (*Identity, error) {
	accepted := Intersect(a.apiAudiences, audiences)
	if len(accepted) == 0 {
		return nil, nil
	}
	user, err := a.users.UserOfToken(ctx, t)
	if user == nil || err != nil {
		return nil, err
	}
	return &Identity{User: user, Audiences: accepted}, nil
}

// Intersect returns the elements of b that are also in a, in the order of b.
func Intersect(a, b []string) []string {
	if slices.Equal(a, b) {
		return a
	}
	var both []string
	for _, s := range b {
		if slices.Contains(a, s) {
			both = append(both, s)
		}
	}
	return both
}
