// Package defaults allows what every user has from the roles that a cluster
// begins with: system:discovery, system:basic-user and
// system:public-info-viewer. It is for as long as roles themselves do not count.
package defaults

import (
	"context"
	"strings"

	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/request"
)

// publicPaths anyone may get (system:public-info-viewer).
var publicPaths = map[string]bool{
	"/healthz": true, "/livez": true, "/readyz": true, "/version": true, "/version/": true,
}

// discoveryPaths authenticated users may get, and what is below them
// (system:discovery).
var discoveryPaths = []string{"/api", "/apis", "/openapi"}

// selfReviews authenticated users may create, by group (system:basic-user).
var selfReviews = map[string][]string{
	"authentication.k8s.io": {"selfsubjectreviews"},
	"authorization.k8s.io":  {"selfsubjectaccessreviews", "selfsubjectrulesreviews"},
}

// Authorizer allows these and has no opinion on the rest.
type Authorizer struct{}

// Authorize implements authz.Authorizer.
func (Authorizer) Authorize(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	if allowed(a.User, a.Info) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

func allowed(u *request.User, i *request.Info) bool {
	authenticated := u.InGroup(request.GroupAuthenticated)
	if i.IsResource() {
		return authenticated && i.Verb == "create" && i.Subresource == "" && contains(selfReviews[i.Group], i.Resource)
	}
	if i.Verb != "get" {
		return false
	}
	if publicPaths[i.Path] {
		return authenticated || u.InGroup(request.GroupUnauthenticated)
	}
	if !authenticated {
		return false
	}
	for _, root := range discoveryPaths {
		if rest, ok := strings.CutPrefix(i.Path, root); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}
