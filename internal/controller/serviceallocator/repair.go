package serviceallocator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
)

// This file repairs allocations. The allocated addresses and ports can only differ from those of Services if
// another program wrote only one of the two: an API server stopped after it had claimed an address and before it
// wrote the Service, a backup was restored, or a Service is older than IPAddresses.

// EnsurePortAllocation stores a RangeAllocation with the node ports of all Services, if there
// is none or it has another range.
func (s *Services) EnsurePortAllocation(ctx context.Context) error {
	for {
		entry, _, err := s.Store.Get(ctx, portsKey, 0)
		if err != nil {
			return err
		}
		if entry.ModRevision != 0 {
			if stored, err := decodePorts(entry.Value); err == nil && stored.within == s.NodePorts {
				return nil
			}
		}
		// If a port is allocated after the RangeAllocation was read, the commit fails.
		ports := &portSet{within: s.NodePorts}
		if err := s.eachService(ctx, func(svc *corev1.Service) {
			for _, p := range append(nodePorts(svc), healthCheckPort(svc)...) {
				ports.set(p, true)
			}
		}); err != nil {
			return err
		}
		if err := s.storePorts(ctx, ports, entry.ModRevision); !isConflict(err) {
			return err
		}
	}
}

func (s *Services) storePorts(ctx context.Context, ports *portSet, revision int64) error {
	value, err := ports.encode()
	if err != nil {
		return err
	}
	_, err = s.Store.Commit(ctx, storage.Txn{
		Conditions: []storage.Condition{{Key: portsKey, ModRevision: revision}},
		Ops:        []storage.Op{storage.Put(portsKey, value)},
	})
	return err
}

func isConflict(err error) bool { return errors.As(err, new(*storage.ConflictError)) }

// pageSize is the number of objects in a page of a list.
const pageSize = 500

// eachObject calls f for all objects of a resource. It reads them from the store and does not
// load the resource into the cache.
func (s *Services) eachObject(ctx context.Context, gr schema.GroupResource, f func(registry.Object)) error {
	r := s.Registry.Resource(gr)
	prefix := r.StoreKey("", "")
	if r.Kind.Namespaced {
		prefix = strings.TrimSuffix(prefix, "/")
	}
	request := storage.RangeRequest{Start: prefix, End: storage.PrefixEnd(prefix), Limit: pageSize}
	for {
		result, err := s.Store.Range(ctx, request)
		if err != nil {
			return err
		}
		for _, entry := range result.Entries {
			obj, err := r.Decoder.DecodeEntry(ctx, entry)
			if err != nil {
				return err
			}
			f(obj)
			request.Start = entry.Key + "\x00"
		}
		if !result.More {
			return nil
		}
		request.Revision = result.Revision
	}
}

func (s *Services) eachService(ctx context.Context, f func(*corev1.Service)) error {
	return s.eachObject(ctx, services, func(obj registry.Object) { f(obj.(*corev1.Service)) })
}

// PortLeaks has the allocated ports that no Service has. The value is the number of successive rounds in which the
// port was found to be leaked.
type PortLeaks map[int]int

// leakRounds is the number of successive rounds in which a port must be leaked before it is released. It gives
// another API server, which has allocated the port, the time to write its Service.
const leakRounds = 3

// RepairPorts allocates the ports of Services that are not allocated, and releases leaked
// ports. It returns descriptions of the changes. If the RangeAllocation changes at the same
// time, it changes nothing; the next round tries again.
func (s *Services) RepairPorts(ctx context.Context, leaks PortLeaks) ([]string, error) {
	entry, _, err := s.Store.Get(ctx, portsKey, 0)
	if err != nil {
		return nil, err
	}
	if entry.ModRevision == 0 {
		return nil, s.EnsurePortAllocation(ctx)
	}
	stored, err := decodePorts(entry.Value)
	if err != nil || stored.within != s.NodePorts {
		return nil, s.EnsurePortAllocation(ctx)
	}
	var changes []string
	used := &portSet{within: s.NodePorts}
	err = s.eachService(ctx, func(svc *corev1.Service) {
		for _, p := range append(nodePorts(svc), healthCheckPort(svc)...) {
			used.set(p, true)
			if s.NodePorts.contains(p) && !stored.has(p) {
				stored.set(p, true)
				changes = append(changes,
					fmt.Sprintf("node port %d of service %s/%s was not allocated", p, svc.Namespace, svc.Name))
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for p := s.NodePorts.First; p <= s.NodePorts.Last; p++ {
		if !stored.has(p) || used.has(p) {
			delete(leaks, p)
			continue
		}
		if leaks[p]++; leaks[p] >= leakRounds {
			stored.set(p, false)
			delete(leaks, p)
			changes = append(changes, fmt.Sprintf("node port %d was allocated, but no service had it", p))
		}
	}
	if len(changes) == 0 {
		return nil, nil
	}
	if err := s.storePorts(ctx, stored, entry.ModRevision); err != nil {
		if isConflict(err) {
			return nil, nil
		}
		return nil, err
	}
	return changes, nil
}

// addressGrace is the minimum age of an IPAddress without Service before it is deleted,
// because another API server may be about to write that Service.
const addressGrace = time.Minute

// RepairAddresses creates the missing IPAddresses of Services, and deletes those that no
// Service has. It returns descriptions of the changes.
func (s *Services) RepairAddresses(ctx context.Context) ([]string, error) {
	existing := map[string]*networkingv1.IPAddress{}
	if err := s.eachObject(ctx, ipAddresses, func(obj registry.Object) {
		existing[obj.GetName()] = obj.(*networkingv1.IPAddress)
	}); err != nil {
		return nil, err
	}
	var missing []*corev1.Service
	owned := map[string]bool{}
	if err := s.eachService(ctx, func(svc *corev1.Service) {
		for _, name := range ipAddressNames(svc) {
			if a := existing[name]; a != nil && isOwnedBy(a, svc.Namespace, svc.Name) {
				owned[name] = true
			} else {
				missing = append(missing, svc)
			}
		}
	}); err != nil {
		return nil, err
	}
	var changes []string
	for _, svc := range missing {
		change, err := s.repairAddresses(ctx, svc, existing)
		if err != nil {
			return changes, err
		}
		changes = append(changes, change...)
	}
	for name, a := range existing {
		if owned[name] || a.Labels[networkingv1.LabelManagedBy] != ManagedBy ||
			s.Now().Sub(a.CreationTimestamp.Time) < addressGrace {
			continue
		}
		removed, err := s.removeOrphan(ctx, a)
		if err != nil {
			return changes, err
		}
		if removed {
			changes = append(changes, fmt.Sprintf("address %s was allocated, but no service had it", name))
		}
	}
	return changes, nil
}

// repairAddresses creates the missing IPAddresses of a Service.
func (s *Services) repairAddresses(
	ctx context.Context, svc *corev1.Service, existing map[string]*networkingv1.IPAddress,
) (changes []string, err error) {
	revision, err := revisionOf(svc)
	if err != nil {
		return nil, err
	}
	for _, name := range ipAddressNames(svc) {
		if a := existing[name]; a != nil {
			if !isOwnedBy(a, svc.Namespace, svc.Name) {
				changes = append(changes,
					fmt.Sprintf("service %s/%s has the address %s, which belongs to another object: delete the service and "+
						"create it again", svc.Namespace, svc.Name, name))
			}
			continue
		}
		a, err := netip.ParseAddr(name)
		if err != nil {
			return changes, err
		}
		op, err := s.Registry.Resource(ipAddresses).Writer.PutOp(ctx, s.newIPAddress(svc, a))
		if err != nil {
			return changes, err
		}
		_, err = s.Store.Commit(ctx, storage.Txn{
			Conditions: []storage.Condition{
				{Key: s.Registry.Resource(services).StoreKey(svc.Namespace, svc.Name), ModRevision: revision}, {Key: op.Key},
			},
			Ops: []storage.Op{op},
		})
		if isConflict(err) {
			continue
		}
		if err != nil {
			return changes, err
		}
		changes = append(changes, fmt.Sprintf("address %s of service %s/%s was not allocated", name, svc.Namespace, svc.Name))
	}
	return changes, nil
}

// removeOrphan deletes an IPAddress, unless its Service has got the address in the meantime. It reports whether
// the IPAddress was deleted.
func (s *Services) removeOrphan(ctx context.Context, a *networkingv1.IPAddress) (bool, error) {
	var conditions []storage.Condition
	if p := a.Spec.ParentRef; p != nil && p.Group == "" && p.Resource == services.Resource {
		r := s.Registry.Resource(services)
		entry, _, err := s.Store.Get(ctx, r.StoreKey(p.Namespace, p.Name), 0)
		if err != nil {
			return false, err
		}
		if entry.ModRevision != 0 {
			obj, err := r.Decoder.DecodeEntry(ctx, entry)
			if err != nil || slices.Contains(ipAddressNames(obj), a.Name) {
				return false, err
			}
		}
		conditions = append(conditions,
			storage.Condition{Key: r.StoreKey(p.Namespace, p.Name), ModRevision: entry.ModRevision})
	}
	revision, err := revisionOf(a)
	if err != nil {
		return false, err
	}
	key := s.Registry.Resource(ipAddresses).StoreKey("", a.Name)
	_, err = s.Store.Commit(ctx, storage.Txn{
		Conditions: append(conditions, storage.Condition{Key: key, ModRevision: revision}),
		Ops:        []storage.Op{storage.Delete(key)},
	})
	if isConflict(err) {
		return false, nil
	}
	return err == nil, err
}

// ipAddressNames returns the names of the IPAddresses of a Service.
func ipAddressNames(obj registry.Object) []string {
	var names []string
	svc := obj.(*corev1.Service)
	if !hasClusterIPs(svc) {
		return nil
	}
	for _, ip := range svc.Spec.ClusterIPs {
		if a, err := parse(ip); err == nil {
			names = append(names, a.String())
		}
	}
	return names
}

func revisionOf(obj registry.Object) (int64, error) {
	return strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
}
