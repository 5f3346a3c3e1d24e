// Package impersonate lets a user act as another one: the headers
// Impersonate-User, -Group, -Uid and -Extra-*.
package impersonate

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/auth/authn"
	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/respond"
)

const (
	headerPrefix = "Impersonate-"
	headerUser   = "Impersonate-User"
	headerGroup  = "Impersonate-Group"
	headerUID    = "Impersonate-Uid"
	extraPrefix  = "Impersonate-Extra-"

	serviceAccountPrefix = "system:serviceaccount:"
	serviceAccountGroup  = "system:serviceaccounts"
)

// New returns the filter. Only members of system:masters may impersonate, and
// they may be anyone.
func New() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked, err := parse(r.Header)
			if err != nil {
				respond.Error(w, r, err)
				return
			}
			if asked == nil {
				next.ServeHTTP(w, r)
				return
			}
			ctx := r.Context()
			user := request.UserFrom(ctx)
			if !user.InGroup(request.GroupMasters) {
				info := *request.InfoFrom(ctx)
				info.Verb = "impersonate-on:user-info:" + info.Verb
				respond.Error(w, r, authz.Forbidden(authz.Attributes{User: user, Info: &info}, ""))
				return
			}
			for name := range r.Header {
				if strings.HasPrefix(name, headerPrefix) {
					r.Header.Del(name)
				}
			}
			next.ServeHTTP(w, r.WithContext(request.WithUser(ctx, complete(asked))))
		})
	}
}

// parse returns the user that the headers name, nil for none.
func parse(h http.Header) (*request.User, error) {
	if !asks(h) {
		return nil, nil
	}
	u := &request.User{Name: h.Get(headerUser), Groups: h[headerGroup], UID: h.Get(headerUID)}
	for name, values := range h {
		key, ok := strings.CutPrefix(name, extraPrefix)
		if !ok {
			continue
		}
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		key = strings.ToLower(key)
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		u.Extra[key] = append(u.Extra[key], values...)
	}
	if u.Name != "" {
		return u, nil
	}
	if u.Groups == nil && u.UID == "" && u.Extra == nil {
		return nil, nil
	}
	return nil, kerrors.NewBadRequest(fmt.Sprintf(
		"requested &user.DefaultInfo{Name:%q, UID:%q, Groups:%#v, Extra:%#v} without impersonating a user name", u.Name, u.UID, u.Groups, u.Extra))
}

// asks says whether there is any such header; most requests have none.
func asks(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, headerPrefix) {
			return true
		}
	}
	return false
}

// complete adds the groups that the user would have on signing in.
func complete(u *request.User) *request.User {
	if u.Name == request.Anonymous {
		if !u.InGroup(request.GroupUnauthenticated) {
			u.Groups = append(u.Groups[:len(u.Groups):len(u.Groups)], request.GroupUnauthenticated)
		}
		return u
	}
	if account, ok := strings.CutPrefix(u.Name, serviceAccountPrefix); ok && u.Groups == nil {
		if namespace, _, ok := strings.Cut(account, ":"); ok {
			u.Groups = []string{serviceAccountGroup, serviceAccountGroup + ":" + namespace}
		}
	}
	return authn.WithAuthenticated(u)
}
