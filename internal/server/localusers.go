package server

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

// localUsers are users for which the program that runs the server has asked for a token. It is an
// authn.AudienceAgnosticAuthenticator. The zero value has no users.
type localUsers struct {
	mu     sync.RWMutex // guards what follows
	byHash map[[sha256.Size]byte]*request.User
	tokens map[string]string // by name and groups
}

// token returns the token of a user. It is always the same for the same name and groups.
func (l *localUsers) token(name string, groups []string) string {
	key := strings.Join(append([]string{name}, groups...), "\x00")
	l.mu.Lock()
	defer l.mu.Unlock()
	if token, ok := l.tokens[key]; ok {
		return token
	}
	if l.tokens == nil {
		l.byHash, l.tokens = map[[sha256.Size]byte]*request.User{}, map[string]string{}
	}
	token := rand.Text()
	l.tokens[key] = token
	user := &request.User{Name: name, Groups: slices.Clone(groups)}
	l.byHash[sha256.Sum256([]byte(token))] = authn.WithAuthenticated(user)
	return token
}

// UserOfToken implements authn.AudienceAgnosticAuthenticator.
func (l *localUsers) UserOfToken(_ context.Context, t authn.BearerToken) (*request.User, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.byHash[t.Hash], nil
}
