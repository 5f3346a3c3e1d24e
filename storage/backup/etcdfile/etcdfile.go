// Package etcdfile reads and writes the file that `etcdctl snapshot save` makes:
// a member's database, a bbolt file, with its SHA-256 behind
// (https://etcd.io/docs/v3.6/op-guide/recovery/).
//
// The bucket "key" has every version under its revision: main revision, '_' and
// the number of the change within it, 17 bytes, and a 't' behind for a deletion;
// values are mvccpb.KeyValue. The bucket "meta" has the member's own numbers.
package etcdfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Buckets, and keys of the bucket "meta" and "cluster"
// (go.etcd.io/etcd/server/v3/storage/schema).
const (
	bucketKey     = "key"
	bucketMeta    = "meta"
	bucketLease   = "lease"
	bucketCluster = "cluster"

	metaScheduledCompact = "scheduledCompactRev"
	metaFinishedCompact  = "finishedCompactRev"
	metaConsistentIndex  = "consistent_index"
	metaTerm             = "term"
	metaConfState        = "confState"
	metaStorageVersion   = "storageVersion"
	clusterVersion       = "clusterVersion"
)

// allBuckets are those that a member's database has, used or not.
var allBuckets = []string{
	bucketKey, bucketMeta, bucketLease, "alarm", bucketCluster,
	"members", "members_removed", "auth", "authUsers", "authRoles",
}

// version is the version of etcd whose format is written.
const version = "3.6.0"

const hashLength = 32

// ErrDamaged says that a file is not what etcd wrote.
var ErrDamaged = errors.New("the etcd snapshot is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// Entry is the newest version of a key.
type Entry struct {
	Key                         string
	Value                       []byte
	CreateRevision, ModRevision int64
	// TTL is how many seconds are left of the key's lease; 0: it has none.
	TTL int64
}

const (
	revisionLength = 17
	tombstoneMark  = 't'
)

// revision is where a version lies.
type revision struct{ main, sub int64 }

func (r revision) bytes() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, revisionLength), uint64(r.main))
	return binary.BigEndian.AppendUint64(append(b, '_'), uint64(r.sub))
}

func parseRevision(b []byte) (r revision, tombstone bool, err error) {
	if len(b) == revisionLength+1 && b[revisionLength] == tombstoneMark {
		tombstone, b = true, b[:revisionLength]
	}
	if len(b) != revisionLength || b[8] != '_' {
		return r, false, damaged("a revision of the form %x", b)
	}
	main, sub := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[9:])
	if main > math.MaxInt64 || sub > math.MaxInt64 {
		return r, false, damaged("a revision of the form %x", b)
	}
	return revision{int64(main), int64(sub)}, tombstone, nil
}

// lease is leasepb.Lease (go.etcd.io/etcd/server/v3/lease/leasepb), which belongs
// to etcd's server.
type lease struct{ id, ttl, remaining int64 }

const (
	leaseFieldID        = 1
	leaseFieldTTL       = 2
	leaseFieldRemaining = 3
)

func (l lease) encode() []byte {
	var b []byte
	for i, v := range []int64{l.id, l.ttl, l.remaining} {
		if v != 0 {
			b = protowire.AppendTag(b, protowire.Number(leaseFieldID+i), protowire.VarintType)
			b = protowire.AppendVarint(b, uint64(v))
		}
	}
	return b
}

func decodeLease(b []byte) (l lease, err error) {
	for len(b) > 0 {
		field, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return l, damaged("a lease cannot be read")
		}
		b = b[n:]
		if typ != protowire.VarintType {
			if n = protowire.ConsumeFieldValue(field, typ, b); n < 0 {
				return l, damaged("a lease cannot be read")
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return l, damaged("a lease cannot be read")
		}
		b = b[n:]
		switch field {
		case leaseFieldID:
			l.id = int64(v)
		case leaseFieldTTL:
			l.ttl = int64(v)
		case leaseFieldRemaining:
			l.remaining = int64(v)
		}
	}
	return l, nil
}

// left is how many seconds the lease lasts when its member starts.
func (l lease) left() int64 {
	if l.remaining > 0 {
		return l.remaining
	}
	return l.ttl
}
