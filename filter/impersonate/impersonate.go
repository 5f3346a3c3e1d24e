// Package impersonate lets a user act as another one: the headers
// Impersonate-User, -Group, -Uid and -Extra-*. Each thing that is asked for needs a
// permission; modes.go has the ways in which they are given (KEP-5284).
package impersonate

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/lru"

	"github.com/keelson-dev/keelson/apiresponse"
	"github.com/keelson-dev/keelson/audit"
	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/request"
)

const (
	headerPrefix = "Impersonate-"
	headerUser   = "Impersonate-User"
	headerGroup  = "Impersonate-Group"
	headerUID    = "Impersonate-Uid"
	extraPrefix  = "Impersonate-Extra-"

	// rememberedUsers bounds for how many users it is known in which mode they
	// impersonate.
	rememberedUsers = 10_000
)

// Observer is told how an attempt ended (allowed or denied), and each question to
// the authorizer on the way. mode is legacy, associated-node, arbitrary-node,
// serviceaccount or user-info; "" for an attempt that failed in all.
type Observer interface {
	Impersonation(mode, decision string, took time.Duration)
	ImpersonationCheck(mode, decision string, took time.Duration)
}

// New returns the filter. A request that impersonates goes on as that user, and
// without the headers: nothing behind the filter sees the one who sent it.
func New(z authz.Authorizer, observe Observer) func(http.Handler) http.Handler {
	f := &filter{authorizer: z, observe: observe, lastMode: lru.New(rememberedUsers)}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked, err := parse(r.Header)
			if err != nil {
				apiresponse.Error(w, r, err)
				return
			}
			if asked == nil {
				next.ServeHTTP(w, r)
				return
			}
			f.serve(w, r, asked, next)
		})
	}
}

type filter struct {
	authorizer authz.Authorizer
	observe    Observer
	// lastMode is the index of the mode that allowed a user, by its name, the last
	// attempt. It is tried first, and what it says of a refusal is answered.
	lastMode *lru.Cache
}

func (f *filter) serve(w http.ResponseWriter, r *http.Request, asked *request.User, next http.Handler) {
	for name := range r.Header {
		if strings.HasPrefix(name, headerPrefix) {
			r.Header.Del(name)
		}
	}
	ctx := r.Context()
	start := time.Now()
	user, mode, err := f.become(ctx, asked, authz.AttributesOf(r))
	audit.Spent(ctx, audit.Impersonation, time.Since(start))
	if err != nil {
		f.observe.Impersonation("", "denied", time.Since(start))
		w.Header().Set("X-Content-Type-Options", "nosniff")
		apiresponse.Error(w, r, err)
		return
	}
	f.observe.Impersonation(mode.label(), "allowed", time.Since(start))
	audit.Impersonate(ctx, user, mode.constraint())
	next.ServeHTTP(w, r.WithContext(request.WithUser(ctx, user)))
}

// become returns who the request goes on as, and by which mode.
func (f *filter) become(ctx context.Context, asked *request.User, at authz.Attributes) (*request.User, *mode, error) {
	var refusal error
	last := -1
	if i, ok := f.lastMode.Get(at.User.Name); ok {
		last = i.(int)
		user, err := f.try(ctx, &modes[last], asked, at)
		if user != nil {
			return user, &modes[last], nil
		}
		refusal = err
	}
	for i := range modes {
		if i == last {
			continue
		}
		user, err := f.try(ctx, &modes[i], asked, at)
		if user != nil {
			f.lastMode.Add(at.User.Name, i)
			return user, &modes[i], nil
		}
		if refusal == nil {
			refusal = err
		}
	}
	return nil, nil, refusal
}

// parse returns the user that the headers name, nil for none.
func parse(h http.Header) (*request.User, error) {
	if !asks(h) {
		return nil, nil
	}
	u := &request.User{Name: h.Get(headerUser), UID: h.Get(headerUID)}
	u.Groups = append(u.Groups, h[headerGroup]...)
	extra := false
	for name, values := range h {
		key, ok := strings.CutPrefix(name, extraPrefix)
		if !ok {
			continue
		}
		extra = true
		if len(values) == 0 {
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
	if u.Groups == nil && u.UID == "" && !extra {
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
