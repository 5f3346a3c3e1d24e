package serviceallocator

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Clock returns the current time.
type Clock func() time.Time

var (
	services     = corev1.SchemeGroupVersion.WithResource("services").GroupResource()
	ipAddresses  = networkingv1.SchemeGroupVersion.WithResource("ipaddresses").GroupResource()
	serviceCIDRs = networkingv1.SchemeGroupVersion.WithResource("servicecidrs").GroupResource()
)

// ManagedBy is the value of the label managed-by of the IPAddresses that belong to Services.
const ManagedBy = "ipallocator.k8s.io"

var (
	errFull       = errors.New("range is full")
	errTaken      = errors.New("provided IP is already allocated")
	errNoNetwork  = errors.New("the provided network does not match the current range")
	errNotReady   = errors.New("allocator not ready")
	errBadAddress = errors.New("invalid address")
)

// chooseIP is allocateIP without metrics.
func (al *allocation) chooseIP(svc *corev1.Service, family corev1.IPFamily, wanted string) (string, error) {
	if wanted == "" {
		ip, err := al.allocateAnyIP(svc, family)
		if errors.Is(err, errFull) {
			return "", kerrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP for Service %q: %w", svc.Name, err))
		}
		if err != nil {
			return "", invalidIPs(svc, fmt.Sprintf("failed to allocate IP: %v", err))
		}
		return ip, nil
	}
	if err := al.allocateRequestedIP(svc, wanted); err != nil {
		return "", invalidIPs(svc, fmt.Sprintf("failed to allocate IP %v: %v", wanted, err))
	}
	return wanted, nil
}

func invalidIPs(svc *corev1.Service, detail string) error {
	return kerrors.NewInvalid(serviceKind, svc.Name,
		field.ErrorList{field.Invalid(field.NewPath("spec", "clusterIPs"), svc.Spec.ClusterIPs, detail)})
}

// These constants say how recent the state must be that an allocation reads. The cached state is enough at first,
// because the transaction fails if an address has been claimed in the meantime.
const (
	cachedState = iota
	latestState
)

// ranges returns the usable address ranges of a family, the default range first.
func (al *allocation) ranges(family corev1.IPFamily, state int) ([]cidr, error) {
	r := al.s.Registry.Resource(serviceCIDRs)
	view, err := al.view(r, state)
	if err != nil {
		return nil, err
	}
	var ranges []cidr
	var failed error
	err = view.Ascend(al.ctx, "", "", 0, func(o *cache.Object) bool {
		var obj registry.Object
		if o, failed = r.Reader.Readable(al.ctx, o); failed == nil {
			obj, failed = r.Decoder.Decode(al.ctx, o)
		}
		if failed != nil {
			return false
		}
		c := obj.(*networkingv1.ServiceCIDR)
		if !isReady(c) {
			return true
		}
		for _, text := range c.Spec.CIDRs {
			p, err := netip.ParsePrefix(text)
			if err != nil || p.Addr().Is6() != (family == corev1.IPv6Protocol) {
				continue // a prefix of the other family; validation has checked that it is a prefix
			}
			if r, ok := newCIDR(p); ok && !slices.Contains(ranges, r) {
				if c.Name == defaultRange {
					ranges = slices.Insert(ranges, 0, r)
				} else {
					ranges = append(ranges, r)
				}
			}
		}
		return true
	})
	return ranges, cmp.Or(err, failed)
}

func (al *allocation) view(r *registry.Resource, state int) (*cache.View, error) {
	if state == latestState {
		return r.Reader.Current(al.ctx)
	}
	return r.Reader.NotOlderThan(al.ctx, 0)
}

// defaultRange is the name of the ServiceCIDR with the ranges of --service-cluster-ip-range.
const defaultRange = "kubernetes"

// isReady reports whether addresses of a ServiceCIDR may be allocated: it is not being
// deleted, and its condition Ready is true or missing.
func isReady(c *networkingv1.ServiceCIDR) bool {
	if c.DeletionTimestamp != nil {
		return false
	}
	for _, condition := range c.Status.Conditions {
		if condition.Type == networkingv1.ServiceCIDRConditionReady {
			return condition.Status == metav1.ConditionTrue
		}
	}
	return true
}

// allocateRequestedIP allocates the address that the client has chosen.
func (al *allocation) allocateRequestedIP(svc *corev1.Service, wanted string) error {
	address, err := parse(wanted)
	if err != nil {
		return err
	}
	ranges, err := al.ranges(familyOf(wanted), latestState)
	if err != nil {
		return err
	}
	if al.dryRun {
		// Like in kube-apiserver, a dry run only checks the first range.
		switch {
		case len(ranges) == 0:
			return errNotReady
		case !ranges[0].contains(address):
			return ranges[0].notInRange(address)
		}
		return nil
	}
	if !slices.ContainsFunc(ranges, func(c cidr) bool { return c.contains(address) }) {
		return errNoNetwork
	}
	if entry, ok := latestConflict(al.conflicts, al.addressKey(address)); ok && entry.ModRevision != 0 {
		return errTaken
	}
	view, err := al.s.Registry.Resource(ipAddresses).Reader.Current(al.ctx)
	if err != nil {
		return err
	}
	if _, taken, err := view.Get(al.ctx, address.String()); err != nil {
		return err
	} else if taken {
		return errTaken
	}
	return al.claimIP(svc, address)
}

// allocateAnyIP allocates a free address.
func (al *allocation) allocateAnyIP(svc *corev1.Service, family corev1.IPFamily) (string, error) {
	for _, state := range []int{cachedState, latestState} {
		a, err := al.findFreeIP(family, state)
		switch {
		case errors.Is(err, errFull) && state == cachedState:
		case err != nil:
			return "", err
		case al.dryRun:
			return a.String(), nil
		default:
			return a.String(), al.claimIP(svc, a)
		}
	}
	return "", errFull
}

// findFreeIP returns a free address. In a dry run, it returns the first address of the prefix, such as 10.0.0.0,
// without looking for a free one.
func (al *allocation) findFreeIP(family corev1.IPFamily, state int) (netip.Addr, error) {
	ranges, err := al.ranges(family, state)
	if err != nil {
		return netip.Addr{}, err
	}
	if al.dryRun && len(ranges) > 0 {
		return ranges[0].prefix.Addr(), nil
	}
	view, err := al.view(al.s.Registry.Resource(ipAddresses), state)
	if err != nil {
		return netip.Addr{}, err
	}
	var failed error
	taken := func(a netip.Addr) bool {
		_, taken, err := view.Get(al.ctx, a.String())
		if err != nil {
			failed = err
		}
		if taken {
			return true
		}
		entry, ok := latestConflict(al.conflicts, al.addressKey(a))
		return ok && entry.ModRevision != 0
	}
	for _, c := range ranges {
		if a, ok := c.findFree(taken, al.s.Random); ok || failed != nil {
			return a, failed
		}
	}
	return netip.Addr{}, errFull
}

// parse parses an address in any notation that a Service may have.
func parse(ip string) (netip.Addr, error) {
	a, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(ip))
	if !ok {
		return a, errBadAddress
	}
	return a.Unmap(), nil
}

func (al *allocation) addressKey(a netip.Addr) string {
	return al.s.Registry.Resource(ipAddresses).StoreKey("", a.String())
}

// claimIP adds the creation of the IPAddress to the transaction. The transaction fails if an
// IPAddress of that name exists.
func (al *allocation) claimIP(svc *corev1.Service, a netip.Addr) error {
	op, err := al.s.Registry.Resource(ipAddresses).Writer.PutOp(al.ctx, al.s.newIPAddress(svc, a))
	if err != nil {
		return err
	}
	al.writes.Conditions = append(al.writes.Conditions, storage.Condition{Key: op.Key})
	al.writes.Ops = append(al.writes.Ops, op)
	return nil
}

// ownedFields are the fields that newIPAddress sets, in the format of managedFields.
var ownedFields = []byte(
	`{"f:metadata":{"f:labels":{".":{},"f:ipaddress.kubernetes.io/ip-family":{},` +
		`"f:ipaddress.kubernetes.io/managed-by":{}}},"f:spec":{"f:parentRef":{".":{},"f:name":{},"f:namespace":{},` +
		`"f:resource":{}}}}`)

// newIPAddress returns the complete IPAddress for an address of a Service.
func (s *Services) newIPAddress(svc *corev1.Service, a netip.Addr) *networkingv1.IPAddress {
	family := corev1.IPv4Protocol
	if a.Is6() {
		family = corev1.IPv6Protocol
	}
	now := metav1.Time{Time: s.Now()}.Rfc3339Copy()
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name: a.String(), UID: uuid.NewUUID(), CreationTimestamp: now,
			Labels: map[string]string{networkingv1.LabelIPAddressFamily: string(family), networkingv1.LabelManagedBy: ManagedBy},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "kube-apiserver", Operation: metav1.ManagedFieldsOperationUpdate, Time: &now,
				APIVersion: networkingv1.SchemeGroupVersion.String(), FieldsType: "FieldsV1",
				FieldsV1: &metav1.FieldsV1{Raw: ownedFields},
			}},
		},
		Spec: networkingv1.IPAddressSpec{
			ParentRef: &networkingv1.ParentReference{Resource: services.Resource, Namespace: svc.Namespace, Name: svc.Name}},
	}
}

// releaseIP adds the deletion of the IPAddress to the transaction, unless the IPAddress has
// another parent.
func (al *allocation) releaseIP(svc *corev1.Service, ip string) error {
	if al.dryRun {
		return nil
	}
	a, err := parse(ip)
	if err != nil {
		return nil //nolint:nilerr // such an address has no IPAddress
	}
	entry, found := latestConflict(al.conflicts, al.addressKey(a))
	if !found {
		if entry, _, err = al.s.Store.Get(al.ctx, al.addressKey(a), 0); err != nil {
			return err
		}
	}
	if entry.ModRevision == 0 {
		return nil
	}
	obj, err := al.s.Registry.Resource(ipAddresses).Decoder.DecodeEntry(al.ctx, entry)
	if err != nil {
		return err
	}
	if !isOwnedBy(obj.(*networkingv1.IPAddress), svc.Namespace, svc.Name) {
		return nil
	}
	al.writes.Conditions = append(al.writes.Conditions,
		storage.Condition{Key: entry.Key, ModRevision: entry.ModRevision})
	al.writes.Ops = append(al.writes.Ops, storage.Delete(entry.Key))
	return nil
}

func isOwnedBy(a *networkingv1.IPAddress, namespace, name string) bool {
	p := a.Spec.ParentRef
	return p != nil && p.Group == "" && p.Resource == services.Resource && p.Namespace == namespace && p.Name == name
}
