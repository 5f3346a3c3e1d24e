package mirror

import (
	"context"
	"maps"
	"time"

	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// leases knows when leases end. Many keys have the same one.
type leases struct {
	source *etcd.Store
	known  map[int64]time.Time
}

// forgetLeases is the number of leases at which those are forgotten that have ended.
const forgetLeases = 10_000

func newLeases(source *etcd.Store) *leases { return &leases{source, map[int64]time.Time{}} }

// deadline returns when a key with a lease expires, in Unix milliseconds; 0 if it has no lease.
func (l *leases) deadline(ctx context.Context, lease int64) (int64, error) {
	if lease == 0 {
		return 0, nil
	}
	at, ok := l.known[lease]
	if !ok {
		var err error
		if at, err = l.source.Expires(ctx, lease); err != nil {
			return 0, err
		}
		now := time.Now()
		if at.IsZero() { // the key is being deleted
			at = now
		}
		if len(l.known) >= forgetLeases {
			maps.DeleteFunc(l.known, func(_ int64, at time.Time) bool { return at.Before(now) })
		}
		l.known[lease] = at
	}
	return at.UnixMilli(), nil
}
