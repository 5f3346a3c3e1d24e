// Package masters allows everything to the members of system:masters.
package masters

import (
	"context"

	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/request"
)

// Authorizer allows system:masters and has no opinion on others.
type Authorizer struct{}

// Authorize implements authz.Authorizer.
func (Authorizer) Authorize(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	if a.User.InGroup(request.GroupMasters) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}
