// Package resource lists the built-in kinds. Each API group declares its own in a
// folder of its own.
package resource

import (
	"slices"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/admissionregistration"
	"github.com/keelson-dev/keelson/resource/apiextensions"
	"github.com/keelson-dev/keelson/resource/apiregistration"
	"github.com/keelson-dev/keelson/resource/apps"
	"github.com/keelson-dev/keelson/resource/authentication"
	"github.com/keelson-dev/keelson/resource/authorization"
	"github.com/keelson-dev/keelson/resource/autoscaling"
	"github.com/keelson-dev/keelson/resource/batch"
	"github.com/keelson-dev/keelson/resource/certificates"
	"github.com/keelson-dev/keelson/resource/coordination"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/discovery"
	"github.com/keelson-dev/keelson/resource/dra"
	"github.com/keelson-dev/keelson/resource/flowcontrol"
	"github.com/keelson-dev/keelson/resource/networking"
	"github.com/keelson-dev/keelson/resource/node"
	"github.com/keelson-dev/keelson/resource/policy"
	"github.com/keelson-dev/keelson/resource/rbac"
	"github.com/keelson-dev/keelson/resource/scheduling"
	"github.com/keelson-dev/keelson/resource/storage"
)

// Kinds returns the built-in kinds, new ones at each call, in the order of
// discovery: groups as /apis lists them, after the core group, and the kinds of
// a group by name. Events, which events.k8s.io serves too, are core's.
func Kinds() []*registry.Kind {
	return slices.Concat(
		core.Kinds(),
		apiregistration.Kinds(),
		apps.Kinds(),
		authentication.Kinds(),
		authorization.Kinds(),
		autoscaling.Kinds(),
		batch.Kinds(),
		certificates.Kinds(),
		networking.Kinds(),
		policy.Kinds(),
		rbac.Kinds(),
		storage.Kinds(),
		admissionregistration.Kinds(),
		apiextensions.Kinds(),
		scheduling.Kinds(),
		coordination.Kinds(),
		node.Kinds(),
		discovery.Kinds(),
		dra.Kinds(),
		flowcontrol.Kinds(),
	)
}
