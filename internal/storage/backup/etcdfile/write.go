package etcdfile

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"os"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// writeKeys is the number of keys that one transaction of the database writes.
const writeKeys = 10_000

// fillPercent is the part of a page that bbolt fills; it is high because the keys are mostly in ascending order.
const fillPercent = 0.9

// leaseBase is added to the seconds of a lease to get its ID.
const leaseBase = 1 << 40

// Write creates the file at path, which must be empty or missing. It is the database of a member at revision at with
// the given entries, in any order; all lower revisions are compacted. Keys with the same TTL share a lease. After an
// error the file cannot be used.
func Write(path string, at int64, entries iter.Seq2[Entry, error]) error {
	db, err := bolt.Open(
		path, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType},
	)
	if err != nil {
		return err
	}
	w := writer{db: db, subs: map[int64]int64{}, leases: map[int64]bool{}}
	if err := errors.Join(w.writeMeta(at), w.writeEntries(at, entries), db.Close()); err != nil {
		return err
	}
	return appendHash(path)
}

// writer writes keys in transactions of limited size.
type writer struct {
	db      *bolt.DB
	subs    map[int64]int64 // number of changes so far, by revision
	leases  map[int64]bool
	pending []Entry
}

// writeMeta creates the buckets and the metadata of a member. The index and the membership describe a cluster with one
// member; `etcdutl snapshot restore` replaces them.
func (w *writer) writeMeta(at int64) error {
	number := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	compacted := revision{main: at}.bytes()
	return w.db.Update(func(tx *bolt.Tx) error {
		for _, name := range allBuckets {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		meta := tx.Bucket([]byte(bucketMeta))
		return errors.Join(
			meta.Put([]byte(metaConsistentIndex), number(1)),
			meta.Put([]byte(metaTerm), number(1)),
			meta.Put([]byte(metaConfState), []byte(`{"voters":[1],"auto_leave":false}`)),
			meta.Put([]byte(metaStorageVersion), []byte(version)),
			meta.Put([]byte(metaScheduledCompact), compacted),
			meta.Put([]byte(metaFinishedCompact), compacted),
			tx.Bucket([]byte(bucketCluster)).Put([]byte(clusterVersion), []byte(version)),
		)
	})
}

// writeEntries writes entries, in transactions of writeKeys keys.
func (w *writer) writeEntries(at int64, entries iter.Seq2[Entry, error]) error {
	for e, err := range entries {
		if err != nil {
			return err
		}
		if e.ModRevision < 1 || e.ModRevision > at {
			return damagedError("key %q is of revision %d, the member of %d", e.Key, e.ModRevision, at)
		}
		if w.pending = append(w.pending, e); len(w.pending) == writeKeys {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return w.flush()
}

// flush writes the pending entries in one transaction.
func (w *writer) flush() error {
	err := w.db.Update(func(tx *bolt.Tx) error {
		for i := range w.pending {
			if err := w.put(tx, &w.pending[i]); err != nil {
				return err
			}
		}
		return nil
	})
	w.pending = w.pending[:0]
	return err
}

func (w *writer) put(tx *bolt.Tx, e *Entry) error {
	kv := mvccpb.KeyValue{
		Key: []byte(e.Key), Value: e.Value,
		CreateRevision: e.CreateRevision, ModRevision: e.ModRevision, Version: 1,
	}
	if e.TTL > 0 {
		kv.Lease = leaseBase + e.TTL
		if err := w.putLease(tx, lease{id: kv.Lease, ttl: e.TTL}); err != nil {
			return err
		}
	}
	value, err := proto.Marshal(protoadapt.MessageV2Of(&kv))
	if err != nil {
		return err
	}
	at := revision{e.ModRevision, w.subs[e.ModRevision]}
	w.subs[e.ModRevision]++
	b := tx.Bucket([]byte(bucketKey))
	b.FillPercent = fillPercent
	return b.Put(at.bytes(), value)
}

// putLease writes a lease, unless it was written before.
func (w *writer) putLease(tx *bolt.Tx, l lease) error {
	if w.leases[l.id] {
		return nil
	}
	w.leases[l.id] = true
	return tx.Bucket([]byte(bucketLease)).Put(binary.BigEndian.AppendUint64(nil, uint64(l.id)), l.encode())
}

// appendHash appends the SHA-256 of the database and syncs the file.
func appendHash(path string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil { // this moves the offset of f to its end
		return err
	}
	if _, err := f.Write(h.Sum(nil)); err != nil {
		return err
	}
	return f.Sync()
}
