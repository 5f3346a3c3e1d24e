package memoryetcd

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

const (
	// minTTL is the shortest time to live of a lease in seconds. etcd has this value with its default election
	// timeout.
	minTTL = 2
	// maxTTL is the longest time to live of a lease in seconds, as in etcd.
	maxTTL = 9_000_000_000
)

// lease is a time to live that keys share.
type lease struct {
	ttl     int64 // seconds
	expires time.Time
	keys    map[string]struct{}
}

// leases has the leases by their IDs. It has no clock: its callers pass the time.
type leases struct{ byID map[int64]*lease }

func newLeases() leases { return leases{map[int64]*lease{}} }

// grant creates a lease and returns its ID and its time to live in seconds. If id is 0, it chooses an ID.
func (l *leases) grant(id, ttl int64, now time.Time) (int64, int64, error) {
	if ttl > maxTTL {
		return 0, 0, rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	for id == 0 {
		id = rand.Int64N(math.MaxInt64)
	}
	if l.byID[id] != nil {
		return 0, 0, rpctypes.ErrGRPCLeaseExist
	}
	ttl = max(ttl, minTTL)
	l.byID[id] = &lease{ttl: ttl, expires: now.Add(seconds(ttl)), keys: map[string]struct{}{}}
	return id, ttl, nil
}

func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(math.MaxInt64/time.Second))) * time.Second
}

// keepAlive renews a lease and returns its time to live in seconds, 0 if there is no such lease.
func (l *leases) keepAlive(id int64, now time.Time) int64 {
	found := l.byID[id]
	if found == nil {
		return 0
	}
	found.expires = now.Add(seconds(found.ttl))
	return found.ttl
}

// remaining returns the remaining time of a lease in seconds, rounded up.
func (l *lease) remaining(now time.Time) int64 {
	return int64(math.Ceil(max(l.expires.Sub(now).Seconds(), 0)))
}

// expired returns the IDs of the leases whose time has ended, in ascending order.
func (l *leases) expired(now time.Time) (ids []int64) {
	for id, one := range l.byID {
		if !one.expires.After(now) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// remove removes a lease and returns its keys, in order.
func (l *leases) remove(id int64) (keys []string, err error) {
	found := l.byID[id]
	if found == nil {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	delete(l.byID, id)
	for key := range found.keys {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys, nil
}

// move detaches a key from one lease and attaches it to another. 0 means no lease.
func (l *leases) move(key string, from, to int64) {
	if found := l.byID[from]; found != nil {
		delete(found.keys, key)
	}
	if found := l.byID[to]; found != nil {
		found.keys[key] = struct{}{}
	}
}
