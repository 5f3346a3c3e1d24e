// Package authenticate finds out who sent a request.
package authenticate

import (
	"log/slog"
	"net/http"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/auth/authn"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/respond"
)

// Observer is told how an attempt ended: "success", "failure" or "error".
type Observer func(result string)

// New returns the filter. Wrong credentials are answered 401; none make the
// request anonymous. Either way the connection is closed afterwards, so that it
// costs an unknown client as much as the server to send many.
func New(a authn.Authenticator, log *slog.Logger, observe Observer) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, err := a.Authenticate(r)
			if user == nil {
				w.Header().Set("Connection", "close")
			}
			if err != nil && user == nil {
				observe("error")
				log.Debug("request with wrong credentials", "path", r.URL.Path, "error", err)
				respond.Error(w, r, unauthorized())
				return
			}
			result := "success"
			if user == nil {
				user, result = authn.AnonymousUser(), "failure"
			}
			observe(result)
			// Nothing behind this filter, a proxied server least of all, needs them.
			r.Header.Del("Authorization")
			next.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), user)))
		})
	}
}

func unauthorized() error {
	return &kerrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnauthorized,
		Reason: metav1.StatusReasonUnauthorized, Message: "Unauthorized",
	}}
}
