package etcd

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// maxLeaseObjects is how many keys share a lease: etcd deletes all keys of a
	// lease in one transaction.
	maxLeaseObjects = 1000
	// leaseMargin is kept from the end of a lease's reuse for the commit's own way.
	leaseMargin = 500 * time.Millisecond
)

// leases shares a lease between keys with the same time to live, because a lease costs more than a key. A lease
// lives longer than its keys must, by the time during which it is given to further keys.
type leases struct {
	grant func(ctx context.Context, ttl int64) (clientv3.LeaseID, error)
	now   func() time.Time
	// longest bounds the reuse of a lease.
	longest time.Duration

	mu    sync.Mutex // guards byTTL
	byTTL map[int64]*bucket
}

type bucket struct {
	// held has one element while somebody has the bucket, as when a lease is granted.
	// It guards what follows; who waits for it waits no longer than its context.
	held    chan struct{}
	id      clientv3.LeaseID
	until   time.Time // no longer handed out after
	objects int
}

// reuse is how long a lease is handed out: a twentieth of the time to live, whole
// seconds.
func (l *leases) reuse(ttl int64) time.Duration {
	return max(time.Second, min(l.longest, time.Duration(ttl/20)*time.Second)).Truncate(time.Second)
}

// take returns a lease for one key that has to live for ttl seconds from now.
func (l *leases) take(ctx context.Context, ttl int64) (clientv3.LeaseID, error) {
	l.mu.Lock()
	b := l.byTTL[ttl]
	if b == nil {
		b = &bucket{held: make(chan struct{}, 1)}
		l.byTTL[ttl] = b
		l.sweep()
	}
	l.mu.Unlock()

	select {
	case b.held <- struct{}{}:
	case <-ctx.Done():
		return clientv3.NoLease, ctx.Err()
	}
	defer func() { <-b.held }()
	now := l.now()
	if b.id == clientv3.NoLease || b.objects >= maxLeaseObjects || !now.Before(b.until) {
		id, err := l.grant(ctx, ttl+int64(l.reuse(ttl)/time.Second))
		if err != nil {
			return clientv3.NoLease, err
		}
		b.id, b.objects, b.until = id, 0, now.Add(l.reuse(ttl)-leaseMargin)
	}
	b.objects++
	return b.id, nil
}

// sweep removes leases that are no longer given to keys. The caller holds mu.
func (l *leases) sweep() {
	const few = 64
	if len(l.byTTL) < few {
		return
	}
	for ttl, b := range l.byTTL {
		select {
		case b.held <- struct{}{}:
			if b.id != clientv3.NoLease && !l.now().Before(b.until) {
				delete(l.byTTL, ttl)
			}
			<-b.held
		default: // it is in use
		}
	}
}

// forget stops handing out a lease that etcd no longer knows.
func (l *leases) forget(ctx context.Context, ttl int64, id clientv3.LeaseID) {
	l.mu.Lock()
	b := l.byTTL[ttl]
	l.mu.Unlock()
	if b == nil {
		return
	}
	select {
	case b.held <- struct{}{}:
	case <-ctx.Done():
		return // whoever asks next is told the same
	}
	defer func() { <-b.held }()
	if b.id == id {
		b.id = clientv3.NoLease
	}
}
