// Package anonymous decides which requests without credentials are allowed as system:anonymous.
package anonymous

import (
	"net/http"
	"slices"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Rule configures which requests without credentials are allowed.
type Rule struct {
	// Enabled allows requests without credentials; their user is system:anonymous.
	Enabled bool
	// Paths are the paths for which such requests are allowed; if empty, all paths.
	Paths []string
}

// Allows reports whether requests without credentials are allowed for a path. Every part of the server that
// answers such requests has to call it.
func (ru *Rule) Allows(path string) bool {
	return ru.Enabled && (len(ru.Paths) == 0 || slices.Contains(ru.Paths, path))
}

// User returns the user system:anonymous, or nil if the request must have credentials.
func (ru *Rule) User(r *http.Request) *request.User {
	if !ru.Allows(r.URL.Path) {
		return nil
	}
	return authn.AnonymousUser()
}
