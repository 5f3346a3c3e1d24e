// Package impersonate lets a user act as another user, by the headers Impersonate-User,
// -Group, -Uid and -Extra-*. Each user name, group, UID and extra value needs a permission;
// modes.go has the modes in which permissions can be granted (KEP-5284).
package impersonate

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/lru"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

const (
	headerPrefix = "Impersonate-"
	headerUser   = "Impersonate-User"
	headerGroup  = "Impersonate-Group"
	headerUID    = "Impersonate-Uid"
	extraPrefix  = "Impersonate-Extra-"

	// rememberedUsers is for how many users the last successful mode is remembered.
	rememberedUsers = 10_000
)

// Observer is called after each impersonation, and after each permission check on the way.
// decision is allowed or denied. mode is legacy, associated-node, arbitrary-node,
// serviceaccount or user-info; it is "" for an impersonation that no mode allowed.
type Observer interface {
	Impersonation(mode, decision string, took time.Duration)
	ImpersonationCheck(mode, decision string, took time.Duration)
}

// New returns the filter. A request that impersonates goes on with the impersonated user and without the
// Impersonate-* headers: later filters and handlers do not see the original user. constrained allows all modes,
// not only the legacy mode (ConstrainedImpersonation).
func New(z authz.Authorizer, observe Observer, constrained bool) func(http.Handler) http.Handler {
	f := &filter{authorizer: z, observe: observe, modes: modes, lastMode: lru.New(rememberedUsers)}
	if !constrained {
		f.modes = slices.DeleteFunc(slices.Clone(modes), func(m mode) bool { return m.isConstrained() })
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requested, err := parse(r.Header, constrained)
			if err != nil {
				apiresponse.Error(w, r, err)
				return
			}
			if requested == nil {
				next.ServeHTTP(w, r)
				return
			}
			f.serve(w, r, requested, next)
		})
	}
}

type filter struct {
	authorizer authz.Authorizer
	observe    Observer
	modes      []mode
	// lastMode has, by user name, the index of the mode that last allowed this user to
	// impersonate. That mode is tried first, and if all modes refuse, its error is returned.
	lastMode *lru.Cache
}

func (f *filter) serve(w http.ResponseWriter, r *http.Request, requested *request.User, next http.Handler) {
	for name := range r.Header {
		if strings.HasPrefix(name, headerPrefix) {
			r.Header.Del(name)
		}
	}
	ctx := r.Context()
	start := time.Now()
	user, mode, err := f.findMode(ctx, requested, authz.AttributesOf(r))
	audit.AddLatency(ctx, audit.Impersonation, time.Since(start))
	if err != nil {
		f.observe.Impersonation("", "denied", time.Since(start))
		w.Header().Set("X-Content-Type-Options", "nosniff")
		apiresponse.Error(w, r, err)
		return
	}
	f.observe.Impersonation(mode.label(), "allowed", time.Since(start))
	audit.Impersonate(ctx, user, mode.constraint())
	if info, by := request.InfoFrom(ctx), request.UserFrom(ctx); info != nil && by != nil {
		info.Impersonator = by.Name
	}
	sender := request.UserFrom(ctx)
	ctx = request.WithUser(ctx, user)
	if mode.isConstrained() {
		ctx = authz.WithConstraint(ctx, f.constraint(mode, sender, requested, user))
	}
	next.ServeHTTP(w, r.WithContext(ctx))
}

// constraint returns the constraint on further permissions that a request in the name of user needs: the sender
// needs each of them, too, with the verb of the mode (see onBehalf). It is lifted if the legacy mode allows the
// same user.
func (f *filter) constraint(m *mode, sender, requested, user *request.User) *authz.Constraint {
	return &authz.Constraint{
		User: user.Name,
		Allows: func(ctx context.Context, a authz.Attributes) (authz.Decision, string, error) {
			decision, reason, err := f.authorizer.Authorize(ctx, m.onBehalf(sender, a))
			if decision != authz.Allow && reason == "" && err == nil {
				reason = fmt.Sprintf("%q may not do this by impersonation: the permission for %s is missing", sender.Name, m.verbOn(a.Info.Verb))
			}
			return decision, reason, err
		},
		Lifted: func(ctx context.Context) bool {
			legacy := &modes[len(modes)-1]
			unconstrained, err := f.try(ctx, legacy, requested, authz.Attributes{User: sender, Info: request.InfoFrom(ctx)})
			return err == nil && reflect.DeepEqual(unconstrained, user)
		},
	}
}

// findMode returns the user that the request goes on with, and the mode that allowed it. If no
// mode allows it, it returns the error of the mode that was tried first.
func (f *filter) findMode(
	ctx context.Context, requested *request.User, at authz.Attributes,
) (*request.User, *mode, error) {
	var refusal error
	last := -1
	if i, ok := f.lastMode.Get(at.User.Name); ok {
		last = i.(int)
		user, err := f.try(ctx, &f.modes[last], requested, at)
		if user != nil {
			return user, &f.modes[last], nil
		}
		refusal = err
	}
	for i := range f.modes {
		if i == last {
			continue
		}
		user, err := f.try(ctx, &f.modes[i], requested, at)
		if user != nil {
			f.lastMode.Add(at.User.Name, i)
			return user, &f.modes[i], nil
		}
		if refusal == nil {
			refusal = err
		}
	}
	return nil, nil, refusal
}

// parse returns the user that the headers ask for, nil if there are no such headers. Groups,
// UID or extra values without a user name are an error.
func parse(h http.Header, constrained bool) (*request.User, error) {
	if !hasImpersonationHeader(h) {
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
	if !constrained {
		return nil, kerrors.NewBadRequest(fmt.Sprintf("requested %v without impersonating a user", references(u)))
	}
	return nil, kerrors.NewBadRequest(fmt.Sprintf(
		"requested &user.DefaultInfo{Name:%q, UID:%q, Groups:%#v, Extra:%#v} without impersonating a user "+
			"name", u.Name, u.UID, u.Groups, u.Extra))
}

// references returns the groups, extra values and UID of a user without a name, as kube-apiserver lists them in an
// error if constrained impersonation is off.
func references(u *request.User) (list []corev1.ObjectReference) {
	for _, name := range u.Groups {
		list = append(list, corev1.ObjectReference{Kind: "Group", Name: name})
	}
	const apiVersion = group + "/" + version
	for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
		for _, value := range u.Extra[key] {
			list = append(list, corev1.ObjectReference{Kind: "UserExtra", Name: value, APIVersion: apiVersion, FieldPath: key})
		}
	}
	if u.UID != "" {
		list = append(list, corev1.ObjectReference{Kind: "UID", Name: u.UID, APIVersion: apiVersion})
	}
	return list
}

// hasImpersonationHeader reports whether there is an Impersonate-* header. Most requests have
// none.
func hasImpersonationHeader(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, headerPrefix) {
			return true
		}
	}
	return false
}
