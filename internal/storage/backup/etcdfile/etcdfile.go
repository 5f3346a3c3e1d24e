// Package etcdfile reads and writes the file of `etcdctl snapshot save`: the database of a member, which is a bbolt
// file, followed by its SHA-256 (https://etcd.io/docs/v3.6/op-guide/recovery/).
//
// The bucket "key" contains every version. Its keys have 17 bytes: the main revision, '_' and the number of the
// change within that revision; 't' follows for a deletion. Its values are mvccpb.KeyValue. The bucket "meta"
// contains numbers of the member, such as its index and its compaction revision.
package etcdfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// Names of buckets, and keys of the buckets "meta" and "cluster" (go.etcd.io/etcd/server/v3/storage/schema).
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

// allBuckets are the buckets of a member's database.
var allBuckets = []string{
	bucketKey, bucketMeta, bucketLease, "alarm", bucketCluster,
	"members", "members_removed", "auth", "authUsers", "authRoles",
}

// version is the version of etcd whose format is written.
const version = "3.6.0"

const hashLength = 32

// ErrDamaged is the error of a file that etcd cannot have written.
var ErrDamaged = errors.New("the etcd snapshot is damaged")

func damagedError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// Entry is the newest version of a key.
type Entry struct {
	Key                         string
	Value                       []byte
	CreateRevision, ModRevision int64
	// TTL is the remaining time of the key's lease in seconds; 0 if the key has no lease.
	TTL int64
}

const (
	revisionLength = 17
	tombstoneMark  = 't'
)

// revision is the position of a version: its revision in etcd, and the number of the change within it.
type revision struct{ main, sub int64 }

// bytes returns the key of the version in the bucket "key".
func (r revision) bytes() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, revisionLength), uint64(r.main))
	return binary.BigEndian.AppendUint64(append(b, '_'), uint64(r.sub))
}

// parseRevision decodes a key of the bucket "key". tombstone is true for a deletion.
func parseRevision(b []byte) (r revision, tombstone bool, err error) {
	if len(b) == revisionLength+1 && b[revisionLength] == tombstoneMark {
		tombstone, b = true, b[:revisionLength]
	}
	if len(b) != revisionLength || b[8] != '_' {
		return r, false, damagedError("a revision of the form %x", b)
	}
	main, sub := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[9:])
	if main > math.MaxInt64 || sub > math.MaxInt64 {
		return r, false, damagedError("a revision of the form %x", b)
	}
	return revision{int64(main), int64(sub)}, tombstone, nil
}

// lease is the message leasepb.Lease (go.etcd.io/etcd/server/v3/lease/leasepb), which is part of etcd's server.
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
		number, kind, value, size, err := wire.NextField(b)
		if err != nil {
			return l, damagedError("a lease cannot be read")
		}
		b = b[size:]
		if kind != protowire.VarintType {
			continue
		}
		switch v := int64(wire.Varint(value)); number {
		case leaseFieldID:
			l.id = v
		case leaseFieldTTL:
			l.ttl = v
		case leaseFieldRemaining:
			l.remaining = v
		}
	}
	return l, nil
}

// secondsLeft returns how long the lease lasts after its member has started, in seconds.
func (l lease) secondsLeft() int64 {
	if l.remaining > 0 {
		return l.remaining
	}
	return l.ttl
}
