package serviceallocator

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/storage"
)

// Services gives Services their cluster IPs and node ports. It implements
// registry.Allocator for the resource services.
type Services struct {
	Registry *registry.Registry
	// Store is where Services, IPAddresses, Endpoints and the ports that are taken are.
	Store storage.Store
	// Families are those of the cluster's ranges of addresses, the default one first.
	Families []corev1.IPFamily
	// NodePorts is the range that node ports come from.
	NodePorts PortRange
	// Now is the clock, Random returns a number below n.
	Now    Clock
	Random func(n uint64) uint64
}

var serviceKind = schema.GroupKind{Kind: "Service"}

// A write is what one change of a Service takes and gives back.
type write struct {
	s         *Services
	ctx       context.Context
	dryRun    bool
	conflicts []*storage.ConflictError

	out   registry.SideWrites
	ports *portClaim
}

// Allocate implements registry.Allocator.
func (s *Services) Allocate(ctx context.Context, a registry.Allocation) (registry.SideWrites, error) {
	svc := a.Object.(*corev1.Service)
	w := &write{s: s, ctx: ctx, dryRun: a.DryRun, conflicts: a.Conflicts}
	var old *corev1.Service
	if a.Old != nil {
		old = a.Old.(*corev1.Service).DeepCopy()
		s.completeOld(old)
		keepAllocated(svc, old)
	}
	syncClusterIPs(svc, old)
	if err := s.completeFamilies(svc, old); err != nil {
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

// Release implements registry.Allocator. The Endpoints of the Service go with it, lest
// another Service of the same name has them.
func (s *Services) Release(ctx context.Context, obj registry.Object, conflicts []*storage.ConflictError) (registry.SideWrites, error) {
	svc := obj.(*corev1.Service)
	w := &write{s: s, ctx: ctx, conflicts: conflicts}
	if hasAddresses(svc) {
		for _, ip := range svc.Spec.ClusterIPs {
			if err := w.releaseIP(svc, ip); err != nil {
				return registry.SideWrites{}, err
			}
		}
	}
	w.releasePorts(append(nodePorts(svc), healthPort(svc)...))
	w.out.Ops = append(w.out.Ops, storage.Delete(s.Registry.Resource(endpoints).StoreKey(svc.Namespace, svc.Name)))
	return w.sideWrites()
}

func (w *write) sideWrites() (registry.SideWrites, error) {
	conditions, ops, err := w.ports.sideWrites()
	w.out.Conditions = append(w.out.Conditions, conditions...)
	w.out.Ops = append(w.out.Ops, ops...)
	if w.dryRun {
		return registry.SideWrites{}, err
	}
	return w.out, err
}

func (w *write) create(svc *corev1.Service) error {
	if err := w.allIPs(svc); err != nil {
		return err
	}
	if mayHaveNodePorts(svc) {
		if err := w.newPorts(svc); err != nil {
			return err
		}
	}
	if wantsHealthPort(svc) {
		return w.healthPort(svc)
	}
	return nil
}

func (w *write) update(svc, old *corev1.Service) error {
	if !preferenceKept(svc, old) {
		if err := w.updateIPs(svc, old); err != nil {
			return err
		}
	}
	has, had := mayHaveNodePorts(svc), mayHaveNodePorts(old)
	switch {
	case has:
		if err := w.updatePorts(svc, old); err != nil {
			return err
		}
	case had:
		w.releasePorts(nodePorts(old))
	}
	switch wants, wanted := wantsHealthPort(svc), wantsHealthPort(old); {
	case wants && !wanted:
		return w.healthPort(svc)
	case wanted && !wants:
		w.releasePorts(healthPort(old))
	}
	return nil
}

// updateIPs takes addresses for a Service that gets some or one more, and gives back
// those of one that has none or one less.
func (w *write) updateIPs(svc, old *corev1.Service) error {
	switch {
	case isExternal(old) && !isExternal(svc):
		return w.allIPs(svc)
	case isNone(old):
		return nil
	case !isExternal(old) && isExternal(svc):
		for _, ip := range old.Spec.ClusterIPs {
			if err := w.releaseIP(old, ip); err != nil {
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
		ip, err := w.oneIP(svc, svc.Spec.IPFamilies[1], svc.Spec.ClusterIPs[1])
		if err != nil {
			return err
		}
		svc.Spec.ClusterIPs[1] = ip
	case was == 2 && is == 1 && len(old.Spec.ClusterIPs) == 2:
		return w.releaseIP(old, old.Spec.ClusterIPs[1])
	}
	return nil
}

// allIPs takes an address of each family of the Service.
func (w *write) allIPs(svc *corev1.Service) error {
	spec := &svc.Spec
	if isExternal(svc) || isNone(svc) {
		return nil
	}
	ips := slices.Clone(spec.ClusterIPs)
	for len(ips) < len(spec.IPFamilies) {
		ips = append(ips, "")
	}
	spec.ClusterIPs = ips
	taken := slices.Clone(ips)
	for i, family := range spec.IPFamilies {
		ip, err := w.oneIP(svc, family, ips[i])
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

// newPorts takes the node ports of a new Service. Ports of the same number and other
// protocols share theirs.
func (w *write) newPorts(svc *corev1.Service) error {
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
		if err := w.nodePort(svc, i); err != nil {
			return err
		}
		if have == 0 {
			shared[p.Port] = p.NodePort
		}
	}
	return nil
}

// nodePort takes the node port of port i, or any.
func (w *write) nodePort(svc *corev1.Service, i int) error {
	claim, err := w.claim()
	if err != nil {
		return kerrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w", err))
	}
	p := &svc.Spec.Ports[i]
	if p.NodePort != 0 {
		if err := claim.take(int(p.NodePort)); err != nil {
			at := field.NewPath("spec", "ports").Index(i).Child("nodePort")
			return kerrors.NewInvalid(serviceKind, svc.Name, field.ErrorList{field.Invalid(at, p.NodePort, err.Error())})
		}
		return nil
	}
	port, err := claim.takeAny()
	if err != nil {
		return kerrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w", err))
	}
	p.NodePort = int32(port)
	return nil
}

// updatePorts takes the node ports that a Service did not have, and gives back those
// that it has no more.
func (w *write) updatePorts(svc, old *corev1.Service) error {
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
		if n := int(p.NodePort); n == 0 || !contains(had, n) && !taken[n] {
			if err := w.nodePort(svc, i); err != nil {
				return err
			}
			if n != 0 {
				taken[n] = true
			}
		}
		if k := (key{p.Protocol, p.NodePort}); used[k] {
			return fmt.Errorf("duplicate nodePort: {%s %d}", p.Protocol, p.NodePort)
		} else {
			used[k] = true
		}
	}
	has := nodePorts(svc)
	w.releasePorts(slices.DeleteFunc(had, func(p int) bool { return contains(has, p) }))
	return nil
}

func (w *write) healthPort(svc *corev1.Service) error {
	claim, err := w.claim()
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

func (w *write) claim() (*portClaim, error) {
	if w.ports != nil {
		return w.ports, nil
	}
	var err error
	w.ports, err = w.s.claimPorts(w.ctx, w.dryRun, w.conflicts)
	return w.ports, err
}

// releasePorts frees ports. If the record of ports in use cannot be read, because it is of
// another range for instance, the ports are freed when the record is repaired.
func (w *write) releasePorts(ports []int) {
	if len(ports) == 0 {
		return
	}
	claim, err := w.claim()
	if err != nil {
		return
	}
	for _, p := range ports {
		claim.release(p)
	}
}

// familyOf returns the family of a valid address.
func familyOf(ip string) corev1.IPFamily {
	if netutils.IsIPv6String(ip) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// completeFamilies sets the policy and the families of a Service, and checks what the
// cluster does not have.
func (s *Services) completeFamilies(svc, old *corev1.Service) error {
	spec := &svc.Spec
	if isExternal(svc) || old != nil && preferenceKept(svc, old) {
		return nil
	}
	openHeadless := spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0
	if spec.IPFamilyPolicy == nil {
		policy := corev1.IPFamilyPolicySingleStack
		switch {
		case old != nil && old.Spec.IPFamilyPolicy != nil:
			policy = *old.Spec.IPFamilyPolicy
		case openHeadless:
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
		spec.IPFamilyPolicy = &policy
	}
	if errs := core.ValidateServiceIPs(svc, old); len(errs) > 0 {
		return kerrors.NewInvalid(serviceKind, svc.Name, errs)
	}
	if errs := s.inferFamilies(svc, old); len(errs) > 0 {
		return kerrors.NewInvalid(serviceKind, svc.Name, errs)
	}
	dual := *spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack
	if openHeadless {
		// Nobody says what its endpoints are: it has both families on any cluster.
		if len(spec.IPFamilies) == 0 {
			spec.IPFamilies = []corev1.IPFamily{s.Families[0]}
		}
		if dual && len(spec.IPFamilies) < 2 {
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
	if dual && len(spec.IPFamilies) == 1 && len(s.Families) == 2 {
		spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
	}
	return nil
}

// inferFamilies brings policy, families and addresses together: a Service that becomes
// single-stack loses its second address, and addresses say their families.
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
				errs = append(errs, field.Invalid(policy, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary cluster IP"))
			}
			if n := len(spec.IPFamilies); n > 0 && n < len(old.Spec.IPFamilies) {
				errs = append(errs, field.Invalid(policy, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary IP family"))
			}
		}
	}
	if single && len(spec.ClusterIPs) == 2 {
		errs = append(errs, field.Invalid(policy, spec.IPFamilyPolicy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified"))
	}
	if single && len(spec.IPFamilies) == 2 {
		errs = append(errs, field.Invalid(policy, spec.IPFamilyPolicy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"))
	}
	for i, ip := range spec.ClusterIPs {
		if ip == corev1.ClusterIPNone {
			break
		}
		if i < len(spec.IPFamilies) {
			continue
		}
		if family := familyOf(ip); contains(s.Families, family) {
			spec.IPFamilies = append(spec.IPFamilies, family)
		} else {
			errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(i), spec.ClusterIPs, fmt.Sprintf("%s is not configured on this cluster", family)))
		}
	}
	return errs
}

// checkFamilies reports what the cluster does not have.
func (s *Services) checkFamilies(spec *corev1.ServiceSpec) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if *spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(s.Families) < 2 {
		errs = append(errs, field.Invalid(path.Child("ipFamilyPolicy"), spec.IPFamilyPolicy, "this cluster is not configured for dual-stack services"))
	}
	for i, family := range spec.IPFamilies {
		if !contains(s.Families, family) {
			errs = append(errs, field.Invalid(path.Child("ipFamilies").Index(i), family, "not configured on this cluster"))
		}
	}
	return errs
}
