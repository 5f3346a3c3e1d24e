// Package authenticate finds out who sent a request.
package authenticate

import (
	"log/slog"
	"net/http"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/apiresponse"
	"github.com/keelson-dev/keelson/audit"
	"github.com/keelson-dev/keelson/auth/authn"
	"github.com/keelson-dev/keelson/request"
)

// Observer is told how an attempt ended ("success", "failure" for no credentials
// where there must be, "error" for wrong ones), the user's name on success, and how
// long it took.
type Observer func(result, user string, took time.Duration)

// Options are what the filter needs.
type Options struct {
	Authenticator authn.Authenticator
	// Anonymous returns the user of a request without credentials, nil where there
	// must be credentials.
	Anonymous func(*http.Request) *request.User
	// Clear removes what only a front proxy may say: nothing behind the filter sees
	// it.
	Clear   func(http.Header)
	Log     *slog.Logger
	Observe Observer
}

// New returns the filter. Wrong credentials are answered 401, and so are none
// where they are needed. The connection of a client without credentials that hold
// is closed afterwards, so that it costs an unknown client as much as the server
// to send many.
func New(o Options) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			start := time.Now()
			user, err := o.Authenticator.Authenticate(r)
			if user != nil {
				err = nil
			} else {
				w.Header().Set("Connection", "close")
				if err == nil {
					user = o.Anonymous(r)
				}
			}
			took := time.Since(start)
			o.observe(user, err, took)
			audit.Spent(r.Context(), audit.Authentication, took)
			if user == nil {
				o.Log.Debug("request without credentials that hold", "path", r.URL.Path, "error", err)
				apiresponse.Error(w, r, unauthorized())
				return
			}
			// Nothing behind this filter, a proxied server least of all, needs them.
			r.Header.Del("Authorization")
			o.Clear(r.Header)
			next.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), user)))
		})
	}
}

func (o *Options) observe(user *request.User, err error, took time.Duration) {
	switch {
	case err != nil:
		o.Observe("error", "", took)
	case user == nil:
		o.Observe("failure", "", took)
	default:
		o.Observe("success", user.Name, took)
	}
}

func unauthorized() error {
	return &kerrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnauthorized,
		Reason: metav1.StatusReasonUnauthorized, Message: "Unauthorized",
	}}
}
