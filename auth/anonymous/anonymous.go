// Package anonymous says which requests without credentials are served.
package anonymous

import (
	"net/http"

	"github.com/keelson-dev/keelson/auth/authn"
	"github.com/keelson-dev/keelson/request"
)

// Rule says who may go without credentials.
type Rule struct {
	// Enabled lets requests without credentials in as the anonymous user.
	Enabled bool
	// Paths are the only ones that they may ask for; none is every path.
	Paths []string
}

// User returns the anonymous user, nil where the request must have credentials.
func (a *Rule) User(r *http.Request) *request.User {
	if !a.Enabled {
		return nil
	}
	if len(a.Paths) == 0 {
		return authn.AnonymousUser()
	}
	for _, path := range a.Paths {
		if path == r.URL.Path {
			return authn.AnonymousUser()
		}
	}
	return nil
}
