package authn

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/keelson-dev/keelson/request"
)

// ErrInvalidToken says that a bearer token is nobody's.
var ErrInvalidToken = errors.New("invalid bearer token")

// BearerToken is a token with its hash, which is taken once: what remembers tokens
// keeps hashes alone.
type BearerToken struct {
	Text string
	Hash [sha256.Size]byte
}

// ordinaryLength is that of tokens which are hashed without allocation.
const ordinaryLength = 2048

// NewBearerToken hashes a token.
func NewBearerToken(text string) BearerToken {
	var onStack [ordinaryLength]byte
	return BearerToken{Text: text, Hash: sha256.Sum256(append(onStack[:0], text...))}
}

// Identity is whom a token stands for.
type Identity struct {
	// User is a member of system:authenticated. It is shared and not changed.
	User *request.User
	// Audiences are those of the audiences asked for that the token is meant for.
	Audiences []string
}

// TokenAuthenticator finds out whom a bearer token stands for, and whether it is
// meant for one of the audiences. It returns nil and no error for a token that is
// not of its kind, and an error for one that is, but does not hold. Errors never
// contain the token. It is called concurrently.
type TokenAuthenticator interface {
	AuthenticateToken(ctx context.Context, t BearerToken, audiences []string) (*Identity, error)
}

// TokenUnion asks each authenticator in turn; the first identity counts. If none
// is found the errors of those that failed are returned.
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

// TokenUsers finds out whose a token is where tokens say nothing of audiences.
// The rules are those of TokenAuthenticator; the user is a member of
// system:authenticated.
type TokenUsers interface {
	UserOfToken(ctx context.Context, t BearerToken) (*request.User, error)
}

// ForAudiences takes tokens that say nothing of audiences as meant for the
// server's own.
func ForAudiences(own []string, users TokenUsers) TokenAuthenticator {
	return &forAudiences{own: own, users: users}
}

type forAudiences struct {
	own   []string
	users TokenUsers
}

func (a *forAudiences) AuthenticateToken(ctx context.Context, t BearerToken, audiences []string) (*Identity, error) {
	meant := Intersect(a.own, audiences)
	if len(meant) == 0 {
		return nil, nil
	}
	user, err := a.users.UserOfToken(ctx, t)
	if user == nil || err != nil {
		return nil, err
	}
	return &Identity{User: user, Audiences: meant}, nil
}

// Intersect returns the members of b that are in a too, in the order of b.
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
