// Package resource lists the built-in kinds. Each folder below it declares the kinds of one API group.
package resource

import (
	"slices"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/admissionregistration"
	"github.com/keelson-dev/keelson/internal/resource/apiextensions"
	"github.com/keelson-dev/keelson/internal/resource/apiregistration"
	"github.com/keelson-dev/keelson/internal/resource/apiserverinternal"
	"github.com/keelson-dev/keelson/internal/resource/apps"
	"github.com/keelson-dev/keelson/internal/resource/authentication"
	"github.com/keelson-dev/keelson/internal/resource/authorization"
	"github.com/keelson-dev/keelson/internal/resource/autoscaling"
	"github.com/keelson-dev/keelson/internal/resource/batch"
	"github.com/keelson-dev/keelson/internal/resource/certificates"
	"github.com/keelson-dev/keelson/internal/resource/coordination"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/discovery"
	"github.com/keelson-dev/keelson/internal/resource/dra"
	"github.com/keelson-dev/keelson/internal/resource/flowcontrol"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/lifecycle"
	"github.com/keelson-dev/keelson/internal/resource/networking"
	"github.com/keelson-dev/keelson/internal/resource/node"
	"github.com/keelson-dev/keelson/internal/resource/policy"
	"github.com/keelson-dev/keelson/internal/resource/rbac"
	"github.com/keelson-dev/keelson/internal/resource/scheduling"
	"github.com/keelson-dev/keelson/internal/resource/storage"
	"github.com/keelson-dev/keelson/internal/resource/storagemigration"
)

// Kinds returns new declarations of all built-in kinds in the order of discovery: the core
// group, then the groups in the order of /apis, and the kinds of a group by name. The core
// group's Events are also served in events.k8s.io. Kinds whose feature gate is off are missing, and beta and alpha
// versions are disabled.
func Kinds(gates features.Gates) []*registry.Kind {
	kinds := slices.Concat(
		core.Kinds(gates),
		apiregistration.Kinds(),
		apps.Kinds(gates),
		authentication.Kinds(),
		authorization.Kinds(),
		autoscaling.Kinds(gates),
		batch.Kinds(gates),
		certificates.Kinds(gates),
		networking.Kinds(gates),
		policy.Kinds(),
		rbac.Kinds(),
		storage.Kinds(gates),
		admissionregistration.Kinds(gates),
		apiextensions.Kinds(),
		scheduling.Kinds(gates),
		coordination.Kinds(gates),
		node.Kinds(),
		discovery.Kinds(gates),
		dra.Kinds(gates),
		flowcontrol.Kinds(),
		apiserverinternal.Kinds(),
		storagemigration.Kinds(gates),
		lifecycle.Kinds(gates),
	)
	// A server that emulates an older release serves its versions. This comes last, because it needs all kinds.
	declare.ForRelease(kinds, gates.Release())
	return kinds
}
