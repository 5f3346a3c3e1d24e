// Package localusers authenticates users by tokens that the program which runs the server has got from
// Users.Token.
package localusers

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Users has users and their tokens, only in memory. It is an authn.AudienceAgnosticAuthenticator. The zero value
// has no users. Its methods may be called concurrently.
type Users struct {
	mu     sync.RWMutex // guards what follows
	byHash map[[sha256.Size]byte]*request.User
	tokens map[string]string // by name and groups
}

// Token returns the token of a user, who is also in the group system:authenticated. It is always the same for the same name and groups.
func (u *Users) Token(name string, groups []string) string {
	key := strings.Join(append([]string{name}, groups...), "\x00")
	u.mu.Lock()
	defer u.mu.Unlock()
	if token, ok := u.tokens[key]; ok {
		return token
	}
	if u.tokens == nil {
		u.byHash, u.tokens = map[[sha256.Size]byte]*request.User{}, map[string]string{}
	}
	token := rand.Text()
	u.tokens[key] = token
	user := &request.User{Name: name, Groups: slices.Clone(groups)}
	u.byHash[sha256.Sum256([]byte(token))] = authn.WithAuthenticated(user)
	return token
}

// UserOfToken implements authn.AudienceAgnosticAuthenticator.
func (u *Users) UserOfToken(_ context.Context, t authn.BearerToken) (*request.User, error) {
	u.mu.RLock()
	defer u.mu.RUnlock()
	return u.byHash[t.Hash], nil
}
