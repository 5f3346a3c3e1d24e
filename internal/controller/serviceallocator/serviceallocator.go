package serviceallocator

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/storage"
)

// Services allocates cluster IPs and node ports of Services. It implements registry.Allocator
// for the resource services.
type Services struct {
	Registry *registry.Registry
	// Store has Services, IPAddresses and the RangeAllocation of node ports.
	Store storage.Store
	// Families are the IP families of the cluster's address ranges, the default family first.
	Families []corev1.IPFamily
	// Addresses are the rules of addresses that clients choose.
	Addresses core.AddressRules
	// NodePorts is the range of node ports.
	NodePorts PortRange
	// Now returns the current time. Random returns a random number less than n.
	Now    Clock
	Random func(n uint64) uint64
	// Metrics may be nil.
	Metrics *Metrics
}

var serviceKind = schema.GroupKind{Kind: "Service"}

// An allocation has the addresses and ports that one write of a Service allocates and
// releases.
type allocation struct {
	s         *Services
	ctx       context.Context
	dryRun    bool
	conflicts []*storage.ConflictError

	writes registry.SideWrites
	ports  *portAllocation
}

// Allocate implements registry.Allocator.
func (s *Services) Allocate(ctx context.Context, a registry.Allocation) (registry.SideWrites, error) {
	svc := a.Object.(*corev1.Service)
	w := &allocation{s: s, ctx: ctx, dryRun: a.DryRun, conflicts: a.Conflicts}
	var old *corev1.Service
	if a.Old != nil {
		old = a.Old.(*corev1.Service).DeepCopy()
		s.setOldDefaults(old)
		keepAllocatedFields(svc, old)
	}
	syncClusterIPs(svc, old)
	if err := s.setFamilies(svc, old); err != nil {
		return registry.SideWrites{}, err
	}
	var err error
	if old == nil {
		err = w.create(svc)
	} else {
		err = w.update(svc, old)
	}
	if err != nil {
		return registry.SideWrites{}, err
	}
	return w.sideWrites()
}

// Release implements registry.Allocator.
func (s *Services) Release(
	ctx context.Context, obj registry.Object, conflicts []*storage.ConflictError,
) (registry.SideWrites, error) {
	svc := obj.(*corev1.Service)
	w := &allocation{s: s, ctx: ctx, conflicts: conflicts}
	if hasClusterIPs(svc) {
		for _, ip := range svc.Spec.ClusterIPs {
			if err := w.releaseIP(svc, ip); err != nil {
				return registry.SideWrites{}, err
			}
		}
	}
	w.releasePorts(append(nodePorts(svc), healthCheckPort(svc)...))
	return w.sideWrites()
}

func (al *allocation) sideWrites() (registry.SideWrites, error) {
	conditions, ops, err := al.ports.sideWrites()
	al.writes.Conditions = append(al.writes.Conditions, conditions...)
	al.writes.Ops = append(al.writes.Ops, ops...)
	if al.dryRun {
		return registry.SideWrites{}, err
	}
	return al.writes, err
}

func (al *allocation) create(svc *corev1.Service) error {
	if err := al.allocateClusterIPs(svc); err != nil {
		return err
	}
	if mayHaveNodePorts(svc) {
		if err := al.allocateNodePorts(svc); err != nil {
			return err
		}
	}
	if wantsHealthCheckPort(svc) {
		return al.allocateHealthCheckPort(svc)
	}
	return nil
}

func (al *allocation) update(svc, old *corev1.Service) error {
	if !dualStackPreferenceUnchanged(svc, old) {
		if err := al.updateIPs(svc, old); err != nil {
			return err
		}
	}
	has, had := mayHaveNodePorts(svc), mayHaveNodePorts(old)
	switch {
	case has:
		if err := al.updatePorts(svc, old); err != nil {
			return err
		}
	case had:
		al.releasePorts(nodePorts(old))
	}
	switch wants, wanted := wantsHealthCheckPort(svc), wantsHealthCheckPort(old); {
	case wants && !wanted:
		return al.allocateHealthCheckPort(svc)
	case wanted && !wants:
		al.releasePorts(healthCheckPort(old))
	}
	return nil
}

// updateIPs allocates the addresses that an update adds, and releases those that it removes.
func (al *allocation) updateIPs(svc, old *corev1.Service) error {
	switch {
	case isExternalName(old) && !isExternalName(svc):
		return al.allocateClusterIPs(svc)
	case isHeadless(old):
		return nil
	case !isExternalName(old) && isExternalName(svc):
		for _, ip := range old.Spec.ClusterIPs {
			if err := al.releaseIP(old, ip); err != nil {
				return err
			}
		}
		return nil
	}
	is, was := len(svc.Spec.IPFamilies), len(old.Spec.IPFamilies)
	switch {
	case was == 1 && is == 2:
		if len(svc.Spec.ClusterIPs) < 2 {
			svc.Spec.ClusterIPs = append(slices.Clone(svc.Spec.ClusterIPs), "")
		}
		ip, err := al.allocateIP(svc, svc.Spec.IPFamilies[1], svc.Spec.ClusterIPs[1])
		if err != nil {
			return err
		}
		svc.Spec.ClusterIPs[1] = ip
	case was == 2 && is == 1 && len(old.Spec.ClusterIPs) == 2:
		return al.releaseIP(old, old.Spec.ClusterIPs[1])
	}
	return nil
}

// allocateClusterIPs allocates an address for each IP family of the Service.
func (al *allocation) allocateClusterIPs(svc *corev1.Service) error {
	spec := &svc.Spec
	if isExternalName(svc) || isHeadless(svc) {
		return nil
	}
	ips := slices.Clone(spec.ClusterIPs)
	for len(ips) < len(spec.IPFamilies) {
		ips = append(ips, "")
	}
	spec.ClusterIPs = ips
	taken := slices.Clone(ips)
	for i, family := range spec.IPFamilies {
		ip, err := al.allocateIP(svc, family, ips[i])
		if err != nil {
			return err
		}
		taken[i] = ip
	}
	spec.ClusterIPs = taken
	if len(taken) > 0 {
		spec.ClusterIP = taken[0]
	}
	return nil
}

// allocateNodePorts allocates the node ports of a new Service. Ports with the same number and
// different protocols have the same node port.
func (al *allocation) allocateNodePorts(svc *corev1.Service) error {
	ports := svc.Spec.Ports
	shared := map[int32]int32{}
	for i := range ports {
		p := &ports[i]
		if p.NodePort == 0 && !wantsNodePorts(svc) {
			continue
		}
		have := shared[p.Port]
		switch {
		case have != 0 && p.NodePort == 0:
			p.NodePort = have
			continue
		case have != 0 && p.NodePort == have:
			continue
		case have == 0:
			for _, other := range ports {
				if other.Port == p.Port && other.NodePort != 0 {
					p.NodePort = other.NodePort
					break
				}
			}
		}
		if err := al.allocateNodePort(svc, i); err != nil {
			return err
		}
		if have == 0 {
			shared[p.Port] = p.NodePort
		}
	}
	return nil
}

// allocateNodePort allocates the node port of port i: the requested one or any.
func (al *allocation) allocateNodePort(svc *corev1.Service, i int) error {
	claim, err := al.portAllocation()
	if err != nil {
		return kerrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w", err))
	}
	p := &svc.Spec.Ports[i]
	if p.NodePort != 0 {
		err := claim.take(int(p.NodePort))
		al.countPort(true, err)
		if err != nil {
			at := field.NewPath("spec", "ports").Index(i).Child("nodePort")
			return kerrors.NewInvalid(serviceKind, svc.Name, field.ErrorList{field.Invalid(at, p.NodePort, err.Error())})
		}
		return nil
	}
	port, err := claim.takeAny()
	al.countPort(false, err)
	if err != nil {
		return kerrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w", err))
	}
	p.NodePort = int32(port)
	return nil
}

// countPort records an allocation of a node port.
func (al *allocation) countPort(chosen bool, err error) {
	if !al.dryRun {
		al.s.Metrics.Port(chosen, err == nil)
	}
}

// updatePorts allocates the node ports that the old Service does not have, and releases those
// that the new one does not have.
func (al *allocation) updatePorts(svc, old *corev1.Service) error {
	had := nodePorts(old)
	type key struct {
		protocol corev1.Protocol
		port     int32
	}
	used, taken := map[key]bool{}, map[int]bool{}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if p.NodePort == 0 && !wantsNodePorts(svc) {
			continue
		}
		if n := int(p.NodePort); n == 0 || !slices.Contains(had, n) && !taken[n] {
			if err := al.allocateNodePort(svc, i); err != nil {
				return err
			}
			if n != 0 {
				taken[n] = true
			}
		}
		if k := (key{p.Protocol, p.NodePort}); used[k] {
			return apierr.New(
				http.StatusInternalServerError, "", fmt.Sprintf("duplicate nodePort: {%s %d}", p.Protocol, p.NodePort),
			)
		} else {
			used[k] = true
		}
	}
	has := nodePorts(svc)
	al.releasePorts(slices.DeleteFunc(had, func(p int) bool { return slices.Contains(has, p) }))
	return nil
}

func (al *allocation) allocateHealthCheckPort(svc *corev1.Service) error {
	claim, err := al.portAllocation()
	if err != nil {
		return kerrors.NewInternalError(err)
	}
	if wanted := svc.Spec.HealthCheckNodePort; wanted != 0 {
		if err := claim.take(int(wanted)); err != nil {
			return kerrors.NewInternalError(fmt.Errorf("failed to allocate requested HealthCheck NodePort %v: %w", wanted, err))
		}
		return nil
	}
	port, err := claim.takeAny()
	if err != nil {
		return kerrors.NewInternalError(fmt.Errorf("failed to allocate a HealthCheck NodePort %v: %w", port, err))
	}
	svc.Spec.HealthCheckNodePort = int32(port)
	return nil
}

func (al *allocation) portAllocation() (*portAllocation, error) {
	if al.ports != nil {
		return al.ports, nil
	}
	var err error
	al.ports, err = al.s.claimPorts(al.ctx, al.dryRun, al.conflicts)
	return al.ports, err
}

// releasePorts frees ports. If the record of ports in use cannot be read, for instance because it has another range,
// the ports are freed when the record is repaired.
func (al *allocation) releasePorts(ports []int) {
	if len(ports) == 0 {
		return
	}
	claim, err := al.portAllocation()
	if err != nil {
		return
	}
	for _, p := range ports {
		claim.release(p)
	}
}

// familyOf returns the IP family of a valid address.
func familyOf(ip string) corev1.IPFamily {
	if netutils.IsIPv6String(ip) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// setFamilies sets ipFamilyPolicy and ipFamilies of a Service. It fails if the Service requires families that the
// cluster does not have.
func (s *Services) setFamilies(svc, old *corev1.Service) error {
	spec := &svc.Spec
	if isExternalName(svc) || old != nil && dualStackPreferenceUnchanged(svc, old) {
		return nil
	}
	headlessWithoutSelector := spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0
	if spec.IPFamilyPolicy == nil {
		policy := corev1.IPFamilyPolicySingleStack
		switch {
		case old != nil && old.Spec.IPFamilyPolicy != nil:
			policy = *old.Spec.IPFamilyPolicy
		case headlessWithoutSelector:
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
		spec.IPFamilyPolicy = &policy
	}
	if errs := s.Addresses.ValidateServiceIPs(svc, old); len(errs) > 0 {
		return kerrors.NewInvalid(serviceKind, svc.Name, errs)
	}
	if errs := s.inferFamilies(svc, old); len(errs) > 0 {
		return kerrors.NewInvalid(serviceKind, svc.Name, errs)
	}
	dualStack := *spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack
	if headlessWithoutSelector {
		// Its endpoints are not known, so it can have both families on any cluster.
		if len(spec.IPFamilies) == 0 {
			spec.IPFamilies = []corev1.IPFamily{s.Families[0]}
		}
		if dualStack && len(spec.IPFamilies) < 2 {
			spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
		}
		return nil
	}
	if errs := s.checkFamilies(spec); len(errs) > 0 {
		return kerrors.NewInvalid(serviceKind, svc.Name, errs)
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{s.Families[0]}
	}
	if dualStack && len(spec.IPFamilies) == 1 && len(s.Families) == 2 {
		spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
	}
	return nil
}

// inferFamilies makes policy, families and addresses consistent: a Service that becomes
// single-stack loses its secondary address, and missing families follow from the addresses.
func (s *Services) inferFamilies(svc, old *corev1.Service) field.ErrorList {
	spec, path := &svc.Spec, field.NewPath("spec")
	policy := path.Child("ipFamilyPolicy")
	single := *spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
	var errs field.ErrorList
	if old != nil {
		same := slices.Equal(spec.ClusterIPs, old.Spec.ClusterIPs)
		sameFamilies := slices.Equal(spec.IPFamilies, old.Spec.IPFamilies)
		switch {
		case single:
			if same && len(spec.ClusterIPs) > 1 {
				spec.ClusterIPs = spec.ClusterIPs[:1]
			}
			if sameFamilies && len(spec.IPFamilies) > 1 {
				spec.IPFamilies = spec.IPFamilies[:1]
			}
		default:
			if n := len(spec.ClusterIPs); n > 0 && n < len(old.Spec.ClusterIPs) {
				errs = append(errs,
					field.Invalid(policy, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary cluster IP"))
			}
			if n := len(spec.IPFamilies); n > 0 && n < len(old.Spec.IPFamilies) {
				errs = append(errs,
					field.Invalid(policy, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary IP family"))
			}
		}
	}
	if single && len(spec.ClusterIPs) == 2 {
		errs = append(errs,
			field.Invalid(policy, spec.IPFamilyPolicy,
				"must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified"))
	}
	if single && len(spec.IPFamilies) == 2 {
		errs = append(errs,
			field.Invalid(policy, spec.IPFamilyPolicy,
				"must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"))
	}
	for i, ip := range spec.ClusterIPs {
		if ip == corev1.ClusterIPNone {
			break
		}
		if i < len(spec.IPFamilies) {
			continue
		}
		if family := familyOf(ip); slices.Contains(s.Families, family) {
			spec.IPFamilies = append(spec.IPFamilies, family)
		} else {
			errs = append(errs,
				field.Invalid(path.Child("clusterIPs").Index(i), spec.ClusterIPs,
					fmt.Sprintf("%s is not configured on this cluster", family)))
		}
	}
	return errs
}

// checkFamilies returns errors for families that the cluster does not have.
func (s *Services) checkFamilies(spec *corev1.ServiceSpec) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if *spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(s.Families) < 2 {
		errs = append(errs,
			field.Invalid(path.Child("ipFamilyPolicy"), spec.IPFamilyPolicy,
				"this cluster is not configured for dual-stack services"))
	}
	for i, family := range spec.IPFamilies {
		if !slices.Contains(s.Families, family) {
			errs = append(errs, field.Invalid(path.Child("ipFamilies").Index(i), family, "not configured on this cluster"))
		}
	}
	return errs
}
