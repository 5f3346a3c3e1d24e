package etcd

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// maxLeaseObjects is the largest number of keys of a lease. etcd deletes all keys of a lease in one transaction.
	maxLeaseObjects = 1000
	// leaseMargin is the time before the end of the reuse time of a lease. In this margin the lease is no longer
	// assigned to keys, so that the commit arrives in time.
	leaseMargin = 500 * time.Millisecond
)

// leases shares leases between keys with the same time to live, because a lease costs etcd more than a key. The
// life of a lease is the time to live of its keys, plus the time during which it is assigned to further keys
// (reuseTime).
//
// Example: an Event with a time to live of 3600 seconds gets a lease of 3660 seconds. During the first minute (less
// leaseMargin) up to 1000 Events get the same lease. Each of them lives for at least 3600 seconds.
type leases struct {
	grant func(ctx context.Context, ttl int64) (clientv3.LeaseID, error)
	now   func() time.Time
	// full is called when a lease is replaced, with the number of its keys.
	full func(keys int)
	// maxReuse is the longest reuse time.
	maxReuse time.Duration

	mu    sync.Mutex // guards byTTL
	byTTL map[int64]*sharedLease
}

// sharedLease is the current lease for keys with one time to live.
type sharedLease struct {
	// lock contains one element while a goroutine uses the fields below, even while a lease is granted. It is a
	// channel, so that a goroutine can stop waiting for it when its context ends.
	lock       chan struct{}
	id         clientv3.LeaseID
	reuseUntil time.Time // the lease is not given to keys after this time
	objects    int
}

// reuseTime returns for how long a lease is assigned to keys: a twentieth of the time to live in whole seconds, at
// least one second and at most maxReuse.
func (l *leases) reuseTime(ttl int64) time.Duration {
	return max(time.Second, min(l.maxReuse, time.Duration(ttl/20)*time.Second)).Truncate(time.Second)
}

// take returns a lease for one key that must live for ttl seconds from now.
func (l *leases) take(ctx context.Context, ttl int64) (clientv3.LeaseID, error) {
	l.mu.Lock()
	b := l.byTTL[ttl]
	if b == nil {
		b = &sharedLease{lock: make(chan struct{}, 1)}
		l.byTTL[ttl] = b
		l.removeUnused()
	}
	l.mu.Unlock()

	select {
	case b.lock <- struct{}{}:
	case <-ctx.Done():
		return clientv3.NoLease, ctx.Err()
	}
	defer func() { <-b.lock }()
	now := l.now()
	if b.id == clientv3.NoLease || b.objects >= maxLeaseObjects || !now.Before(b.reuseUntil) {
		id, err := l.grant(ctx, ttl+int64(l.reuseTime(ttl)/time.Second))
		if err != nil {
			return clientv3.NoLease, err
		}
		if b.objects > 0 {
			l.full(b.objects)
		}
		b.id, b.objects, b.reuseUntil = id, 0, now.Add(l.reuseTime(ttl)-leaseMargin)
	}
	b.objects++
	return b.id, nil
}

// removeUnused removes leases that are no longer given to keys, if there are many. The caller holds mu.
func (l *leases) removeUnused() {
	const few = 64
	if len(l.byTTL) < few {
		return
	}
	for ttl, b := range l.byTTL {
		select {
		case b.lock <- struct{}{}:
			if b.id != clientv3.NoLease && !l.now().Before(b.reuseUntil) {
				delete(l.byTTL, ttl)
			}
			<-b.lock
		default: // the lease is in use
		}
	}
}

// invalidate stops the use of a lease that etcd does not know any more.
func (l *leases) invalidate(ctx context.Context, ttl int64, id clientv3.LeaseID) {
	l.mu.Lock()
	b := l.byTTL[ttl]
	l.mu.Unlock()
	if b == nil {
		return
	}
	select {
	case b.lock <- struct{}{}:
	case <-ctx.Done():
		return // the next transaction with this lease fails in the same way
	}
	defer func() { <-b.lock }()
	if b.id == id {
		b.id = clientv3.NoLease
	}
}
