// Package authn says what it is to authenticate a request. Each method has a
// folder of its own beside this one.
package authn

import (
	"net/http"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/keelson-dev/keelson/request"
)

// Authenticator finds out who sent a request. It returns a nil user and no error
// for a request without credentials of its kind, and an error for credentials
// that are wrong. The user is shared and not changed. It is called concurrently.
type Authenticator interface {
	Authenticate(r *http.Request) (*request.User, error)
}

// Union asks each authenticator in turn; the first user counts. If none is found
// the errors of those that failed are returned.
type Union []Authenticator

// Authenticate implements Authenticator.
func (u Union) Authenticate(r *http.Request) (*request.User, error) {
	var failed []error
	for _, a := range u {
		user, err := a.Authenticate(r)
		if user != nil {
			return user, nil
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return nil, utilerrors.NewAggregate(failed)
}

// anonymous is never changed.
var anonymous = request.User{Name: request.Anonymous, Groups: []string{request.GroupUnauthenticated}}

// AnonymousUser is who sends a request without credentials.
func AnonymousUser() *request.User { return &anonymous }

// WithAuthenticated returns user as a member of system:authenticated too, unless
// it is the anonymous user or said to be unauthenticated.
func WithAuthenticated(u *request.User) *request.User {
	if u.Name == request.Anonymous || u.InGroup(request.GroupAuthenticated) || u.InGroup(request.GroupUnauthenticated) {
		return u
	}
	out := *u
	out.Groups = append(append(make([]string, 0, len(u.Groups)+1), u.Groups...), request.GroupAuthenticated)
	return &out
}
