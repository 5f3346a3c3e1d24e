// Package bootstraptoken authenticates the short tokens that nodes join a cluster
// with. Each is a secret of type bootstrap.kubernetes.io/token in kube-system.
package bootstraptoken

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/auth/authn"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
)

const (
	namespace    = "kube-system"
	namePrefix   = "bootstrap-token-"
	userPrefix   = "system:bootstrap:"
	defaultGroup = "system:bootstrappers"

	keyID         = "token-id"
	keySecret     = "token-secret"
	keyExpiration = "expiration"
	keyGroups     = "auth-extra-groups"
	keyUsage      = "usage-bootstrap-authentication"
)

const (
	idLength, secretLength = 6, 16

	groupPrefix = "system:bootstrappers:"
	// longestGroup is what may follow groupPrefix.
	longestGroup = 256
)

// Objects finds secrets. registry.Registry is one.
type Objects interface {
	// Lookup returns an object, decoded, nil if there is none.
	Lookup(ctx context.Context, r schema.GroupResource, namespace, name string) (registry.Object, error)
}

// Authenticator is an authn.TokenUsers.
type Authenticator struct {
	Objects Objects
	Log     *slog.Logger
	Now     func() time.Time
}

// UserOfToken implements authn.TokenUsers.
func (a *Authenticator) UserOfToken(ctx context.Context, t authn.BearerToken) (*request.User, error) {
	id, private, ok := split(t.Text)
	if !ok {
		return nil, nil
	}
	obj, err := a.Objects.Lookup(ctx, corev1.Resource("secrets"), namespace, namePrefix+id)
	secret, ok := obj.(*corev1.Secret)
	if err != nil || !ok {
		return nil, err
	}
	if why := a.refuse(secret, id, private); why != "" {
		a.Log.Debug("a bootstrap token is not accepted", "secret", secret.Name, "reason", why)
		return nil, nil
	}
	groups, ok := groupsOf(string(secret.Data[keyGroups]))
	if !ok {
		a.Log.Debug("a bootstrap token is not accepted", "secret", secret.Name, "reason", "its groups are not of system:bootstrappers:")
		return nil, nil
	}
	return authn.WithAuthenticated(&request.User{Name: userPrefix + id, Groups: groups}), nil
}

// split takes a token of the form of bootstrap tokens apart.
func split(token string) (id, secret string, ok bool) {
	if len(token) != idLength+1+secretLength || token[idLength] != '.' {
		return "", "", false
	}
	id, secret = token[:idLength], token[idLength+1:]
	return id, secret, all(id, isAlphanumeric) && all(secret, isAlphanumeric)
}

func isAlphanumeric(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

func all(s string, is func(byte) bool) bool {
	for i := range len(s) {
		if !is(s[i]) {
			return false
		}
	}
	return true
}

// mayHave says whether a token may make its user a member of the group.
func mayHave(group string) bool {
	own, ok := strings.CutPrefix(group, groupPrefix)
	return ok && own != "" && len(own) <= longestGroup && isAlphanumeric(own[len(own)-1]) &&
		all(own, func(c byte) bool { return isAlphanumeric(c) || c == ':' || c == '-' })
}

// refuse says why the secret does not stand for the token, "" where it does.
func (a *Authenticator) refuse(s *corev1.Secret, id, private string) string {
	switch {
	case s.DeletionTimestamp != nil:
		return "it is being deleted"
	case s.Type != corev1.SecretTypeBootstrapToken:
		return "it is of another type"
	case subtle.ConstantTimeCompare(s.Data[keySecret], []byte(private)) != 1:
		return "its " + keySecret + " is another"
	case string(s.Data[keyID]) != id:
		return "its " + keyID + " is another"
	case a.expired(string(s.Data[keyExpiration])):
		return "it has expired"
	case string(s.Data[keyUsage]) != "true":
		return keyUsage + " is not true"
	}
	return ""
}

// expired takes an end that cannot be read for one that has been.
func (a *Authenticator) expired(end string) bool {
	if end == "" {
		return false
	}
	t, err := time.Parse(time.RFC3339, end)
	return err != nil || !t.After(a.Now())
}

// groupsOf returns the sorted groups of a token; they must be ones for tokens.
func groupsOf(extra string) ([]string, bool) {
	groups := []string{defaultGroup}
	if extra != "" {
		for group := range strings.SplitSeq(extra, ",") {
			if !mayHave(group) {
				return nil, false
			}
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups), true
}
