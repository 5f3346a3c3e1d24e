package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// The permission to update the status of a claim is not enough to change what is in it (gate
// DRAResourceClaimGranularStatusAuthorization, KEP-4817). A scheduler has the permission for resourceclaims/binding, and a
// driver the one for resourceclaims/driver with its name. These subresources exist only as names of permissions.

// validateStatusPermissions validates that the user of the request may change the parts of the status that an update changes.
// The gate needs DRAResourceClaimDeviceStatus, so there can be statuses of devices.
func validateStatusPermissions(
	ctx context.Context, c, old *resourcev1.ResourceClaim, check func(*request.Info) error,
) field.ErrorList {
	v := &statusPermissions{sent: request.InfoFrom(ctx), user: request.UserFrom(ctx), check: check}
	path, is, was := field.NewPath("status"), &c.Status, &old.Status
	var errs field.ErrorList
	if !equality.Semantic.DeepEqual(is.Allocation, was.Allocation) || !equality.Semantic.DeepEqual(is.ReservedFor, was.ReservedFor) {
		errs = v.validateBinding(path.Child("allocation"))
	}
	// The end of an allocation removes the statuses of its devices, whoever ends it.
	if drivers := changedDrivers(is.Devices, was.Devices); is.Allocation != nil && len(drivers) > 0 {
		errs = append(errs, v.validateDrivers(drivers, allocatedNode(is.Allocation), path.Child("devices"))...)
	}
	return errs
}

// statusPermissions checks the permissions of one request.
type statusPermissions struct {
	sent  *request.Info
	user  *request.User
	check func(*request.Info) error
}

// permission returns the error 403 unless the user has a permission for a subresource of claims.
// It asks with a copy of the request: the version and the resource stay.
func (p *statusPermissions) permission(verb, subresource, namespace, name string) error {
	asked := *p.sent
	asked.Verb, asked.Subresource, asked.Namespace, asked.Name = verb, subresource, namespace, name
	return p.check(&asked)
}

// validateBinding wants the permission to bind claims of all names in all namespaces.
func (p *statusPermissions) validateBinding(path *field.Path) field.ErrorList {
	if p.sent == nil {
		return unknownRequest(path)
	}
	if err := p.permission(p.sent.Verb, resourcev1.SubresourceBinding, "", ""); err != nil {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("changing status.allocation or status.reservedFor requires "+
			`resource="resourceclaims/binding", verb="%s" permission: %s`, p.sent.Verb, err))}
	}
	return nil
}

// validateDrivers wants the permission for each driver. It is another one for a service account on the node of the claim.
// The verbs are, for example, arbitrary-node:update and associated-node:update. A driver on each node needs only
// the second one, and then cannot change claims of other nodes.
func (p *statusPermissions) validateDrivers(drivers []string, node string, path *field.Path) field.ErrorList {
	if p.sent == nil {
		return unknownRequest(path)
	}
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + p.sent.Verb}
	if isAccountOn(p.user, node) {
		verbs = slices.Insert(verbs, 0, resourcev1.VerbPrefixAssociatedNode+p.sent.Verb)
	}
	var errs field.ErrorList
	for _, driver := range drivers {
		if err := p.anyPermission(verbs, driver); err != nil {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("changing status.devices requires "+
				`resource="resourceclaims/driver", verb="%s" permission: %s`, verbs, err)))
		}
	}
	return errs
}

// anyPermission returns nil if the user has one of the verbs for a driver, and otherwise the error of the first.
func (p *statusPermissions) anyPermission(verbs []string, driver string) (first error) {
	for _, verb := range verbs {
		err := p.permission(verb, resourcev1.SubresourceDriver, p.sent.Namespace, driver)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

func unknownRequest(path *field.Path) field.ErrorList {
	return field.ErrorList{
		field.InternalError(path, errors.New("cannot build authorizer attributes: no RequestInfo found in the context"))}
}

// changedDrivers returns the sorted drivers of the devices whose statuses were added, removed or changed. A device that is
// there twice was added.
func changedDrivers(is, was []resourcev1.AllocatedDeviceStatus) []string {
	before := map[deviceKey]*resourcev1.AllocatedDeviceStatus{}
	for i := range was {
		before[statusKey(&was[i])] = &was[i]
	}
	var drivers []string
	for i := range is {
		key := statusKey(&is[i])
		if old, ok := before[key]; !ok || !equality.Semantic.DeepEqual(old, &is[i]) {
			drivers = append(drivers, key.Driver)
		}
		delete(before, key)
	}
	for key := range before {
		drivers = append(drivers, key.Driver)
	}
	slices.Sort(drivers)
	return slices.Compact(drivers)
}

// allocatedNode returns the name of the node that an allocation selects, "" if it does not select one by its name.
func allocatedNode(a *resourcev1.AllocationResult) string {
	if a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	term := &a.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) != 0 || len(term.MatchFields) != 1 {
		return ""
	}
	f := &term.MatchFields[0]
	if f.Key != "metadata.name" || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1 {
		return ""
	}
	return f.Values[0]
}

// isAccountOn reports whether a user is a service account whose token belongs to a pod on this node.
// The authenticator takes the name of the node from the token (KEP-4193).
func isAccountOn(user *request.User, node string) bool {
	parts, ok := strings.CutPrefix(user.Name, "system:serviceaccount:")
	namespace, name, two := strings.Cut(parts, ":")
	if !ok || !two || len(apivalidation.ValidateNamespaceName(namespace, false)) > 0 ||
		len(apivalidation.ValidateServiceAccountName(name, false)) > 0 {
		return false
	}
	nodes := user.Extra["authentication.kubernetes.io/node-name"]
	return len(nodes) == 1 && nodes[0] == node && len(apivalidation.NameIsDNSSubdomain(node, false)) == 0
}
