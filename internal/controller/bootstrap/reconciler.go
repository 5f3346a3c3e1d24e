package bootstrap

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/storage"
)

// SingleServer is the Reconciler of a server that shares its store with no other server.
type SingleServer struct{ Address string }

// Servers implements Reconciler.
func (s SingleServer) Servers(context.Context) ([]string, error) { return []string{s.Address}, nil }

// Leave implements Reconciler.
func (s SingleServer) Leave(context.Context) ([]string, error) { return nil, nil }

const (
	leasePrefix = registryRoot + "masterleases/"
	// registryRoot is the prefix of kube-apiserver's keys.
	registryRoot = "/registry/"
	// leaseSeconds is the time in seconds after which a server that does not renew its lease is removed. It is longer
	// than interval.
	leaseSeconds = 15
)

// leaseHead is the envelope of a stored lease.
var leaseHead = wire.NewEnvelopeHead("v1", "Endpoints")

// EtcdLeases is the Reconciler of servers that share an etcd cluster. Some of the servers may be kube-apiservers.
// Each server has a key in etcd, which expires unless the server refreshes it.
type EtcdLeases struct {
	Store   storage.Store
	Address string
}

// Servers implements Reconciler.
func (l *EtcdLeases) Servers(ctx context.Context) ([]string, error) {
	key := leasePrefix + l.Address
	for {
		entry, _, err := l.Store.Get(ctx, key, 0)
		if err != nil {
			return nil, err
		}
		value, err := l.lease(entry.Value)
		if err != nil {
			return nil, err
		}
		_, err = l.Store.Commit(ctx, storage.Txn{
			Conditions: []storage.Condition{{Key: key, ModRevision: entry.ModRevision}},
			Ops:        []storage.Op{{Key: key, Value: value, TTL: leaseSeconds}},
		})
		if err == nil {
			return l.list(ctx)
		}
		if !errors.As(err, new(*storage.ConflictError)) {
			return nil, err
		}
	}
}

// lease returns the new value of a lease, with an incremented generation.
func (l *EtcdLeases) lease(before []byte) ([]byte, error) {
	e := &corev1.Endpoints{}
	if before != nil {
		var err error
		if e, err = decodeLease(before); err != nil {
			return nil, err
		}
	}
	e.Generation++
	e.Subsets = []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: l.Address}}}}
	return scheme.EncodeEnvelope(leaseHead, e)
}

func decodeLease(value []byte) (*corev1.Endpoints, error) {
	raw, err := wire.Raw(value)
	if err != nil {
		return nil, err
	}
	e := &corev1.Endpoints{}
	return e, e.Unmarshal(raw)
}

// list returns the addresses in all leases.
func (l *EtcdLeases) list(ctx context.Context) ([]string, error) {
	result, err := l.Store.Range(ctx, storage.RangeRequest{Start: leasePrefix, End: storage.PrefixEnd(leasePrefix)})
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, entry := range result.Entries {
		e, err := decodeLease(entry.Value)
		if err != nil {
			return nil, err
		}
		if len(e.Subsets) > 0 && len(e.Subsets[0].Addresses) > 0 &&
			!slices.Contains(addresses, e.Subsets[0].Addresses[0].IP) {
			addresses = append(addresses, e.Subsets[0].Addresses[0].IP)
		}
	}
	return addresses, nil
}

// Leave implements Reconciler.
func (l *EtcdLeases) Leave(ctx context.Context) ([]string, error) {
	if _, err := l.Store.Commit(ctx, storage.Txn{Ops: []storage.Op{storage.Delete(leasePrefix + l.Address)}}); err != nil {
		return nil, err
	}
	return l.list(ctx)
}
