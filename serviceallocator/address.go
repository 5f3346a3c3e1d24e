package serviceallocator

import (
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

	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/storage"
)

// Clock tells the time.
type Clock func() time.Time

var (
	services     = corev1.SchemeGroupVersion.WithResource("services").GroupResource()
	endpoints    = corev1.SchemeGroupVersion.WithResource("endpoints").GroupResource()
	ipAddresses  = networkingv1.SchemeGroupVersion.WithResource("ipaddresses").GroupResource()
	serviceCIDRs = networkingv1.SchemeGroupVersion.WithResource("servicecidrs").GroupResource()
)

// ManagedBy is the label of the IPAddresses that belong to Services.
const ManagedBy = "ipallocator.k8s.io"

var (
	errFull       = errors.New("range is full")
	errTaken      = errors.New("provided IP is already allocated")
	errNoNetwork  = errors.New("the provided network does not match the current range")
	errNotReady   = errors.New("allocator not ready")
	errBadAddress = errors.New("invalid address")
)

// oneIP takes an address of a family: the one that is wanted, or any where that is "".
func (w *write) oneIP(svc *corev1.Service, family corev1.IPFamily, wanted string) (string, error) {
	if wanted == "" {
		ip, err := w.anyIP(svc, family)
		if errors.Is(err, errFull) {
			return "", kerrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP for Service %q: %w", svc.Name, err))
		}
		if err != nil {
			return "", invalidIPs(svc, fmt.Sprintf("failed to allocate IP: %v", err))
		}
		return ip, nil
	}
	if err := w.thisIP(svc, wanted); err != nil {
		return "", invalidIPs(svc, fmt.Sprintf("failed to allocate IP %v: %v", wanted, err))
	}
	return wanted, nil
}

func invalidIPs(svc *corev1.Service, detail string) error {
	return kerrors.NewInvalid(serviceKind, svc.Name, field.ErrorList{field.Invalid(field.NewPath("spec", "clusterIPs"), svc.Spec.ClusterIPs, detail)})
}

// How new the state must be that a write looks at. An older one does at first, since
// the transaction fails on what is taken meanwhile.
const (
	anyState = iota
	latestState
)

// ranges returns the ranges of a family that addresses may be given out of, the
// default one first.
func (w *write) ranges(family corev1.IPFamily, state int) ([]cidr, error) {
	r := w.s.Registry.Resource(serviceCIDRs)
	view, err := w.view(r, state)
	if err != nil {
		return nil, err
	}
	var ranges []cidr
	var failed error
	err = view.Ascend(w.ctx, "", "", 0, func(o *cache.Object) bool {
		var obj registry.Object
		if o, failed = r.Readable(w.ctx, o); failed == nil {
			obj, failed = r.Decode(w.ctx, o)
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
				continue // another family; what is no prefix was refused when it was written
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
	if err == nil {
		err = failed
	}
	return ranges, err
}

func (w *write) view(r *registry.Resource, state int) (*cache.View, error) {
	if state == latestState {
		return r.Current(w.ctx)
	}
	return r.NotOlderThan(w.ctx, 0)
}

// defaultRange is the name of the ServiceCIDR that has --service-cluster-ip-range.
const defaultRange = "kubernetes"

// isReady says whether addresses of a range may be given out.
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

// thisIP takes an address that the client chose.
func (w *write) thisIP(svc *corev1.Service, wanted string) error {
	address, err := parse(wanted)
	if err != nil {
		return err
	}
	ranges, err := w.ranges(familyOf(wanted), latestState)
	if err != nil {
		return err
	}
	if w.dryRun {
		// A dry run looks at the range alone, and at one range.
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
	if entry, ok := latest(w.conflicts, w.addressKey(address)); ok && entry.ModRevision != 0 {
		return errTaken
	}
	view, err := w.s.Registry.Resource(ipAddresses).Current(w.ctx)
	if err != nil {
		return err
	}
	if _, taken, err := view.Get(w.ctx, address.String()); err != nil {
		return err
	} else if taken {
		return errTaken
	}
	return w.takeIP(svc, address)
}

// anyIP takes an address that is free.
func (w *write) anyIP(svc *corev1.Service, family corev1.IPFamily) (string, error) {
	for _, state := range []int{anyState, latestState} {
		a, err := w.freeIP(family, state)
		switch {
		case errors.Is(err, errFull) && state == anyState:
		case err != nil:
			return "", err
		case w.dryRun:
			return a.String(), nil
		default:
			return a.String(), w.takeIP(svc, a)
		}
	}
	return "", errFull
}

// freeIP finds an address that nobody has; of a dry run it is the range's own.
func (w *write) freeIP(family corev1.IPFamily, state int) (netip.Addr, error) {
	ranges, err := w.ranges(family, state)
	if err != nil {
		return netip.Addr{}, err
	}
	if w.dryRun && len(ranges) > 0 {
		return ranges[0].prefix.Addr(), nil
	}
	view, err := w.view(w.s.Registry.Resource(ipAddresses), state)
	if err != nil {
		return netip.Addr{}, err
	}
	var failed error
	taken := func(a netip.Addr) bool {
		_, taken, err := view.Get(w.ctx, a.String())
		if err != nil {
			failed = err
		}
		if taken {
			return true
		}
		entry, ok := latest(w.conflicts, w.addressKey(a))
		return ok && entry.ModRevision != 0
	}
	for _, c := range ranges {
		if a, ok := c.pick(taken, w.s.Random); ok || failed != nil {
			return a, failed
		}
	}
	return netip.Addr{}, errFull
}

// parse reads an address as it may be written in a Service.
func parse(ip string) (netip.Addr, error) {
	a, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(ip))
	if !ok {
		return a, errBadAddress
	}
	return a.Unmap(), nil
}

func (w *write) addressKey(a netip.Addr) string {
	return w.s.Registry.Resource(ipAddresses).StoreKey("", a.String())
}

// takeIP makes the IPAddress that claims an address.
func (w *write) takeIP(svc *corev1.Service, a netip.Addr) error {
	op, err := w.s.Registry.Resource(ipAddresses).PutOp(w.ctx, w.s.addressOf(svc, a))
	if err != nil {
		return err
	}
	w.out.Conditions = append(w.out.Conditions, storage.Condition{Key: op.Key})
	w.out.Ops = append(w.out.Ops, op)
	return nil
}

// ownedFields are the fields that addressOf sets.
var ownedFields = []byte(`{"f:metadata":{"f:labels":{".":{},"f:ipaddress.kubernetes.io/ip-family":{},"f:ipaddress.kubernetes.io/managed-by":{}}},"f:spec":{"f:parentRef":{".":{},"f:name":{},"f:namespace":{},"f:resource":{}}}}`)

// addressOf is the IPAddress of an address that a Service has, complete.
func (s *Services) addressOf(svc *corev1.Service, a netip.Addr) *networkingv1.IPAddress {
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
				APIVersion: networkingv1.SchemeGroupVersion.String(), FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: ownedFields},
			}},
		},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: services.Resource, Namespace: svc.Namespace, Name: svc.Name}},
	}
}

// releaseIP removes the IPAddress of an address that the Service has. One that names
// another parent stays.
func (w *write) releaseIP(svc *corev1.Service, ip string) error {
	if w.dryRun {
		return nil
	}
	a, err := parse(ip)
	if err != nil {
		return nil //nolint:nilerr // nothing was ever taken for it
	}
	entry, found := latest(w.conflicts, w.addressKey(a))
	if !found {
		if entry, _, err = w.s.Store.Get(w.ctx, w.addressKey(a), 0); err != nil {
			return err
		}
	}
	if entry.ModRevision == 0 {
		return nil
	}
	obj, err := w.s.Registry.Resource(ipAddresses).DecodeEntry(w.ctx, entry)
	if err != nil {
		return err
	}
	if !belongsTo(obj.(*networkingv1.IPAddress), svc.Namespace, svc.Name) {
		return nil
	}
	w.out.Conditions = append(w.out.Conditions, storage.Condition{Key: entry.Key, ModRevision: entry.ModRevision})
	w.out.Ops = append(w.out.Ops, storage.Delete(entry.Key))
	return nil
}

func belongsTo(a *networkingv1.IPAddress, namespace, name string) bool {
	p := a.Spec.ParentRef
	return p != nil && p.Group == "" && p.Resource == services.Resource && p.Namespace == namespace && p.Name == name
}
