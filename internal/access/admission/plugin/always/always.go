// Package always has two plug-ins that do not depend on the write. AlwaysAdmit admits everything, which has no effect
// because a chain admits a write that no plug-in refuses. AlwaysDeny refuses everything and is only useful in tests.
// Both are deprecated and off by default.
package always

import (
	"context"

	"github.com/keelson-dev/keelson/internal/access/admission"
)

// Admit returns the plug-in AlwaysAdmit.
func Admit() admission.Plugin { return admission.Plugin{Name: "AlwaysAdmit"} }

// Deny returns the plug-in AlwaysDeny. It also refuses the writes of the server itself.
func Deny() admission.Plugin {
	return admission.Plugin{Name: "AlwaysDeny", Mutate: deny, Validate: deny}
}

func deny(_ context.Context, a *admission.Attributes) error {
	return a.Forbiddenf("admission control is denying all modifications")
}
