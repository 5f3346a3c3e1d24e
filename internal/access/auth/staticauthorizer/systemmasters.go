package staticauthorizer

import (
	"context"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// SystemMasters allows every request of a member of the group system:masters, and
// returns NoOpinion for other users.
type SystemMasters struct{}

// Authorize implements authz.Authorizer.
func (SystemMasters) Authorize(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	if a.User.InGroup(request.GroupMasters) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}
