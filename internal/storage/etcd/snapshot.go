package etcd

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keelson-dev/keelson/internal/storage"
)

// Leased is a key with the lease whose end deletes it; 0 means none.
type Leased struct {
	storage.Entry
	Lease int64
}

// root is the beginning of the keys of API objects.
const root = DefaultPrefix + "/"

// snapshotPage is the number of keys that Snapshot reads at a time.
const snapshotPage = 500

// Snapshot returns all keys of API objects as they were at a revision, in the order of the keys. It fails with *storage.CompactedError if the revision is
// compacted meanwhile.
func (s *Store) Snapshot(ctx context.Context, revision int64) iter.Seq2[Leased, error] {
	return func(yield func(Leased, error) bool) {
		key, end := s.keys.span(root, storage.PrefixEnd(root)).wire()
		for {
			r, err := s.readAt(ctx, key, revision, clientv3.WithRange(end), clientv3.WithLimit(snapshotPage))
			if err != nil {
				yield(Leased{}, err)
				return
			}
			for _, kv := range r.Kvs {
				key = string(kv.Key) + "\x00"
				if e := s.entry(kv); e.Key != recordKey && !yield(Leased{e, kv.Lease}, nil) {
					return
				}
			}
			if !r.More {
				return
			}
		}
	}
}

// Expires returns when the keys of a lease expire, to the second; zero if the lease has ended.
func (s *Store) Expires(ctx context.Context, lease int64) (time.Time, error) {
	r, err := retry(ctx, s.startMemberCheck, shortAttemptTimeout, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return s.client.TimeToLive(ctx, clientv3.LeaseID(lease))
	})
	if err != nil || r.TTL < 0 {
		return time.Time{}, err
	}
	return time.Now().Add(time.Duration(r.TTL) * time.Second), nil
}

// Identity tells the keys of this store from those of other clusters, and of other prefixes. It stays when members are replaced; a cluster
// that was restored from a backup has another one.
func (s *Store) Identity(ctx context.Context) (string, error) {
	r, err := retry(ctx, s.startMemberCheck, shortAttemptTimeout, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.client.Get(ctx, missingKey, clientv3.WithCountOnly())
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("etcd cluster %x, %s", r.Header.ClusterId, cmp.Or(s.keys.prefix, DefaultPrefix)), nil
}
