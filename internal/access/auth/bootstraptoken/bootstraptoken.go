// Package bootstraptoken authenticates bootstrap tokens, with which nodes join a cluster.
// Each token is a Secret of type bootstrap.kubernetes.io/token in kube-system.
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

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
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
	// maxGroupSuffix limits the bytes after groupPrefix in a group.
	maxGroupSuffix = 256
)

// Objects reads Secrets. registry.Registry implements it.
type Objects interface {
	// Lookup returns the decoded object, nil if it does not exist.
	Lookup(ctx context.Context, r schema.GroupResource, namespace, name string) (registry.Object, error)
}

// Authenticator is an authn.AudienceAgnosticAuthenticator.
type Authenticator struct {
	Objects Objects
	Log     *slog.Logger
	Now     func() time.Time
}

// UserOfToken implements authn.AudienceAgnosticAuthenticator.
func (a *Authenticator) UserOfToken(ctx context.Context, t authn.BearerToken) (*request.User, error) {
	id, tokenSecret, ok := split(t.Text)
	if !ok {
		return nil, nil
	}
	obj, err := a.Objects.Lookup(ctx, corev1.Resource("secrets"), namespace, namePrefix+id)
	secret, ok := obj.(*corev1.Secret)
	if err != nil || !ok {
		return nil, err
	}
	if reason := a.refusalReason(secret, id, tokenSecret); reason != "" {
		a.Log.Debug("bootstrap token refused", "secret", secret.Name, "reason", reason)
		return nil, nil
	}
	groups, ok := groupsOf(string(secret.Data[keyGroups]))
	if !ok {
		a.Log.Debug("bootstrap token refused", "secret", secret.Name, "reason",
			"a group is not allowed: it does not begin with system:bootstrappers:")
		return nil, nil
	}
	return authn.WithAuthenticated(&request.User{Name: userPrefix + id, Groups: groups}), nil
}

// split returns the ID and the secret of a bootstrap token, false if it has another format.
func split(token string) (id, secret string, ok bool) {
	if len(token) != idLength+1+secretLength || token[idLength] != '.' {
		return "", "", false
	}
	id, secret = token[:idLength], token[idLength+1:]
	return id, secret, allBytes(id, isAlphanumeric) && allBytes(secret, isAlphanumeric)
}

func isAlphanumeric(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

func allBytes(s string, is func(byte) bool) bool {
	for i := range len(s) {
		if !is(s[i]) {
			return false
		}
	}
	return true
}

// isAllowedGroup reports whether a bootstrap token may give its user this group.
func isAllowedGroup(group string) bool {
	own, ok := strings.CutPrefix(group, groupPrefix)
	return ok && own != "" && len(own) <= maxGroupSuffix && isAlphanumeric(own[len(own)-1]) &&
		allBytes(own, func(c byte) bool { return isAlphanumeric(c) || c == ':' || c == '-' })
}

// refusalReason returns why the Secret does not allow the token, "" if it does.
func (a *Authenticator) refusalReason(s *corev1.Secret, id, tokenSecret string) string {
	switch {
	case s.DeletionTimestamp != nil:
		return "the secret is being deleted"
	case s.Type != corev1.SecretTypeBootstrapToken:
		return "the secret has another type"
	case subtle.ConstantTimeCompare(s.Data[keySecret], []byte(tokenSecret)) != 1:
		return "the " + keySecret + " does not match"
	case string(s.Data[keyID]) != id:
		return "the " + keyID + " does not match"
	case a.expired(string(s.Data[keyExpiration])):
		return "the token has expired"
	case string(s.Data[keyUsage]) != "true":
		return keyUsage + " is not true"
	}
	return ""
}

// expired reports whether the token has expired. An expiration that cannot be parsed counts as
// expired.
func (a *Authenticator) expired(end string) bool {
	if end == "" {
		return false
	}
	t, err := time.Parse(time.RFC3339, end)
	return err != nil || !t.After(a.Now())
}

// groupsOf returns the sorted groups of a token. It returns false if a group is not allowed
// for bootstrap tokens.
func groupsOf(extra string) ([]string, bool) {
	groups := []string{defaultGroup}
	if extra != "" {
		for group := range strings.SplitSeq(extra, ",") {
			if !isAllowedGroup(group) {
				return nil, false
			}
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups), true
}
