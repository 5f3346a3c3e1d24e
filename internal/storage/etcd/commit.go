package etcd

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keelson-dev/keelson/internal/storage"
)

// Commit implements storage.Store. If a condition does not hold, the same transaction reads the current entries of
// the keys in the conditions.
func (s *Store) Commit(ctx context.Context, txn storage.Txn) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	compares, gets, err := s.comparisons(txn.Conditions)
	if err != nil {
		return 0, err
	}
	for again := false; ; again = true {
		ops, used, err := s.operations(ctx, txn.Ops)
		if err != nil {
			return 0, err
		}
		ops = s.withRecord(ops, &txn)
		slow := time.AfterFunc(slowRequest, s.startMemberCheck)
		r, err := s.client.Txn(ctx).If(compares...).Then(ops...).Else(gets...).Commit()
		slow.Stop()
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound) && !again:
			// The transaction had no effect. The lease may be missing because the data of the cluster was replaced, or because
			// this process was suspended.
			for ttl, id := range used {
				s.leases.invalidate(ctx, ttl, id)
			}
			continue
		case err != nil:
			return 0, s.convertError(ctx, "commit", err)
		}
		s.observe(r.Header.Revision)
		if !r.Succeeded {
			return 0, s.conflict(txn.Conditions, r)
		}
		return r.Header.Revision, nil
	}
}

// comparisons returns etcd's comparisons for conditions, and the reads of their keys that etcd makes if a
// condition fails.
func (s *Store) comparisons(conditions []storage.Condition) ([]clientv3.Cmp, []clientv3.Op, error) {
	compares := make([]clientv3.Cmp, len(conditions))
	gets := make([]clientv3.Op, len(conditions))
	for i, c := range conditions {
		key, err := s.keys.toEtcd(c.Key)
		if err != nil {
			return nil, nil, err
		}
		compares[i] = clientv3.Compare(clientv3.ModRevision(key), "=", c.ModRevision)
		gets[i] = clientv3.OpGet(key)
	}
	return compares, gets, nil
}

// operations returns etcd's operations for ops, and the leases that they use. The map key is the time to live.
func (s *Store) operations(ctx context.Context, ops []storage.Op) ([]clientv3.Op, map[int64]clientv3.LeaseID, error) {
	out := make([]clientv3.Op, len(ops))
	var used map[int64]clientv3.LeaseID
	for i, op := range ops {
		key, err := s.keys.toEtcd(op.Key)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case op.Delete:
			out[i] = clientv3.OpDelete(key)
		case op.TTL <= 0:
			out[i] = clientv3.OpPut(key, string(op.Value))
		default:
			id, err := s.leases.take(ctx, op.TTL)
			if err != nil {
				return nil, nil, s.convertError(ctx, "grant a lease", err)
			}
			if used == nil {
				used = make(map[int64]clientv3.LeaseID)
			}
			used[op.TTL] = id
			out[i] = clientv3.OpPut(key, string(op.Value), clientv3.WithLease(id))
		}
	}
	return out, used, nil
}

// conflict returns the *storage.ConflictError of the first condition that did not hold.
func (s *Store) conflict(conditions []storage.Condition, r *clientv3.TxnResponse) error {
	for i, c := range conditions {
		var current storage.Entry
		if kvs := rangeResponse(r, i).GetKvs(); len(kvs) > 0 {
			current = s.entry(kvs[0])
		}
		if current.ModRevision != c.ModRevision {
			return &storage.ConflictError{Condition: c, Current: current, Revision: r.Header.Revision}
		}
	}
	return &Error{Op: "commit", Cause: errors.New("the transaction failed and all its conditions hold")}
}

// rangeResponse returns the response to the i-th operation of a transaction, nil if the operation is not a range.
func rangeResponse(r *clientv3.TxnResponse, i int) *pb.RangeResponse {
	if i >= len(r.Responses) {
		return nil
	}
	return r.Responses[i].GetResponseRange()
}
