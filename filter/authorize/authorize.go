// Package authorize asks whether a user may do what a request asks for.
package authorize

import (
	"net/http"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/respond"
)

// Observer is told how an attempt ended: "allowed", "denied", "no-opinion" or
// "error".
type Observer func(result string)

// New returns the filter. A refusal is answered 403 before the body is read.
func New(a authz.Authorizer, observe Observer) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := r.Context()
			attributes := authz.Attributes{User: request.UserFrom(ctx), Info: request.InfoFrom(ctx)}
			decision, reason, err := a.Authorize(ctx, attributes)
			if decision == authz.Allow {
				observe("allowed")
				next.ServeHTTP(w, r)
				return
			}
			if err != nil {
				observe("error")
				respond.Error(w, r, kerrors.NewInternalError(err))
				return
			}
			if decision == authz.Deny {
				observe("denied")
			} else {
				observe("no-opinion")
			}
			attributes.Info = named(r, attributes.Info)
			respond.Error(w, r, authz.Forbidden(attributes, reason))
		})
	}
}

// named gives a collection request the name that its field selector asks for.
func named(r *http.Request, i *request.Info) *request.Info {
	if i.Name != "" || (i.Verb != "list" && i.Verb != "watch" && i.Verb != "deletecollection") || !strings.Contains(r.URL.RawQuery, "fieldSelector") {
		return i
	}
	selector, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return i
	}
	name, ok := selector.RequiresExactMatch("metadata.name")
	if !ok {
		return i
	}
	out := *i
	out.Name = name
	return &out
}
