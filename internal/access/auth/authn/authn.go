// Package authn has the interfaces of authentication. Each authentication method is a
// package in a folder beside this one.
package authn

import (
	"net/http"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Authenticator finds the user who sent a request. It returns a nil user and no error if the
// request has no credentials of the kind that it handles, and an error if they are not valid.
// The returned user is shared and must not be changed. Authenticate is called concurrently.
type Authenticator interface {
	Authenticate(r *http.Request) (*request.User, error)
}

// Union calls the authenticators in order and returns the first user. If no authenticator
// returns a user, it returns all their errors.
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

// anonymous is shared by all anonymous requests and never changed.
var anonymous = request.User{Name: request.Anonymous, Groups: []string{request.GroupUnauthenticated}}

// AnonymousUser returns the user of a request without credentials. It must not be changed.
func AnonymousUser() *request.User { return &anonymous }

// WithAuthenticated returns the user with the group system:authenticated added. It returns the
// user unchanged if it is system:anonymous, or in system:authenticated or
// system:unauthenticated already.
func WithAuthenticated(u *request.User) *request.User {
	if u.Name == request.Anonymous || u.InGroup(request.GroupAuthenticated) || u.InGroup(request.GroupUnauthenticated) {
		return u
	}
	out := *u
	out.Groups = append(append(make([]string, 0, len(u.Groups)+1), u.Groups...), request.GroupAuthenticated)
	return &out
}
