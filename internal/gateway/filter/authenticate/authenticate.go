// Package authenticate is the filter that authenticates requests.
package authenticate

import (
	"log/slog"
	"net/http"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// Observer is called after each attempt to authenticate. result is "success", "failure" (there
// are no credentials, but they are required) or "error" (the credentials are not valid). user
// is empty unless result is "success".
type Observer func(result, user string, took time.Duration)

// Options are the dependencies of the filter.
type Options struct {
	Authenticator authn.Authenticator
	// Anonymous returns the user of a request without credentials, nil if the request
	// needs credentials.
	Anonymous func(*http.Request) *request.User
	// Clear removes the headers that only a front proxy may send, such as X-Remote-User. The
	// filters and handlers that follow do not see them.
	Clear   func(http.Header)
	Log     *slog.Logger
	Observe Observer
	// Refusals counts and logs credentials that are not accepted; nil does neither.
	Refusals *Refusals
}

// New returns the filter. It answers 401 if the credentials are not valid, or are missing
// where they are required. It closes the connection of a client that did not authenticate, so
// that sending many requests costs that client a new TLS handshake each time.
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
			audit.AddLatency(r.Context(), audit.Authentication, took)
			if user == nil {
				if err != nil {
					o.Refusals.refused(r, err)
				}
				o.Log.Debug("request without valid credentials", "path", r.URL.Path, "error", err)
				apiresponse.Error(w, r, unauthorized())
				return
			}
			// No later filter or handler needs the credentials, and a proxied server must not get them.
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
