package serviceallocator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/storage"
)

// What is taken and what Services have can only differ where another program wrote
// one without the other: an API server that claims an address before it writes the
// Service and stops in between, a restored backup, a Service from before there were
// claims.

// PreparePorts makes the record of the ports that are taken, if there is none or it is
// of another range.
func (s *Services) PreparePorts(ctx context.Context) error {
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
		// What is taken after the record was read makes the commit fail.
		ports := &portSet{within: s.NodePorts}
		if err := s.eachService(ctx, func(svc *corev1.Service) {
			for _, p := range append(nodePorts(svc), healthPort(svc)...) {
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

func isConflict(err error) bool {
	var conflict *storage.ConflictError
	return errors.As(err, &conflict)
}

// page is how many objects are read at a time.
const page = 500

// each calls f for all objects of a resource. It asks the store and leaves the
// resource out of memory.
func (s *Services) each(ctx context.Context, gr schema.GroupResource, f func(registry.Object)) error {
	r := s.Registry.Resource(gr)
	prefix := r.StoreKey("", "")
	if r.Kind.Namespaced {
		prefix = strings.TrimSuffix(prefix, "/")
	}
	request := storage.RangeRequest{Start: prefix, End: storage.PrefixEnd(prefix), Limit: page}
	for {
		result, err := s.Store.Range(ctx, request)
		if err != nil {
			return err
		}
		for _, entry := range result.Entries {
			obj, err := r.DecodeEntry(ctx, entry)
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
	return s.each(ctx, services, func(obj registry.Object) { f(obj.(*corev1.Service)) })
}

// Leaks are the ports that were seen taken by nobody, with how often in a row.
type Leaks map[int]int

// leakRounds is how often in a row a port must be seen leaked before it is freed: an
// API server that takes it before it writes the Service needs that time.
const leakRounds = 3

// RepairPorts takes the ports that Services have, and frees those that no Service has
// had for some rounds. It returns what was changed, in words. What changes meanwhile
// is left to the next round.
func (s *Services) RepairPorts(ctx context.Context, leaks Leaks) ([]string, error) {
	entry, _, err := s.Store.Get(ctx, portsKey, 0)
	if err != nil {
		return nil, err
	}
	if entry.ModRevision == 0 {
		return nil, s.PreparePorts(ctx)
	}
	stored, err := decodePorts(entry.Value)
	if err != nil || stored.within != s.NodePorts {
		return nil, s.PreparePorts(ctx)
	}
	var changes []string
	used := &portSet{within: s.NodePorts}
	err = s.eachService(ctx, func(svc *corev1.Service) {
		for _, p := range append(nodePorts(svc), healthPort(svc)...) {
			used.set(p, true)
			if s.NodePorts.contains(p) && !stored.has(p) {
				stored.set(p, true)
				changes = append(changes, fmt.Sprintf("node port %d of service %s/%s was not taken", p, svc.Namespace, svc.Name))
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
			changes = append(changes, fmt.Sprintf("node port %d was taken by no service", p))
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

// addressGrace is how long an IPAddress without its Service is left alone: another API
// server may be about to write that.
const addressGrace = time.Minute

// RepairAddresses makes the IPAddresses that Services lack, and removes those that no
// Service has. It returns what was changed, in words.
func (s *Services) RepairAddresses(ctx context.Context) ([]string, error) {
	claimed := map[string]*networkingv1.IPAddress{}
	if err := s.each(ctx, ipAddresses, func(obj registry.Object) {
		claimed[obj.GetName()] = obj.(*networkingv1.IPAddress)
	}); err != nil {
		return nil, err
	}
	var lacking []*corev1.Service
	owned := map[string]bool{}
	if err := s.eachService(ctx, func(svc *corev1.Service) {
		for _, name := range addressesOf(svc) {
			if a := claimed[name]; a != nil && belongsTo(a, svc.Namespace, svc.Name) {
				owned[name] = true
			} else {
				lacking = append(lacking, svc)
			}
		}
	}); err != nil {
		return nil, err
	}
	var changes []string
	for _, svc := range lacking {
		change, err := s.repairAddresses(ctx, svc, claimed)
		if err != nil {
			return changes, err
		}
		changes = append(changes, change...)
	}
	for name, a := range claimed {
		if owned[name] || a.Labels[networkingv1.LabelManagedBy] != ManagedBy || s.Now().Sub(a.CreationTimestamp.Time) < addressGrace {
			continue
		}
		removed, err := s.removeOrphan(ctx, a)
		if err != nil {
			return changes, err
		}
		if removed {
			changes = append(changes, fmt.Sprintf("address %s was taken by no service", name))
		}
	}
	return changes, nil
}

// repairAddresses claims the addresses that a Service has and that nobody claims.
func (s *Services) repairAddresses(ctx context.Context, svc *corev1.Service, claimed map[string]*networkingv1.IPAddress) (changes []string, err error) {
	revision, err := revisionOf(svc)
	if err != nil {
		return nil, err
	}
	for _, name := range addressesOf(svc) {
		if a := claimed[name]; a != nil {
			if !belongsTo(a, svc.Namespace, svc.Name) {
				changes = append(changes, fmt.Sprintf("service %s/%s has the address %s, which is another's: it must be made anew", svc.Namespace, svc.Name, name))
			}
			continue
		}
		a, err := netip.ParseAddr(name)
		if err != nil {
			return changes, err
		}
		op, err := s.Registry.Resource(ipAddresses).PutOp(ctx, s.addressOf(svc, a))
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
		changes = append(changes, fmt.Sprintf("address %s of service %s/%s was not taken", name, svc.Namespace, svc.Name))
	}
	return changes, nil
}

// removeOrphan removes a claim, unless its Service has the address by now.
func (s *Services) removeOrphan(ctx context.Context, a *networkingv1.IPAddress) (bool, error) {
	var conditions []storage.Condition
	if p := a.Spec.ParentRef; p != nil && p.Group == "" && p.Resource == services.Resource {
		r := s.Registry.Resource(services)
		entry, _, err := s.Store.Get(ctx, r.StoreKey(p.Namespace, p.Name), 0)
		if err != nil {
			return false, err
		}
		if entry.ModRevision != 0 {
			obj, err := r.DecodeEntry(ctx, entry)
			if err != nil || contains(addressesOf(obj), a.Name) {
				return false, err
			}
		}
		conditions = append(conditions, storage.Condition{Key: r.StoreKey(p.Namespace, p.Name), ModRevision: entry.ModRevision})
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

// addressesOf are the addresses of a Service as IPAddresses name them.
func addressesOf(obj registry.Object) []string {
	var names []string
	svc := obj.(*corev1.Service)
	if !hasAddresses(svc) {
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
