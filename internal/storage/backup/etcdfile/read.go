package etcdfile

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"runtime/debug"
	"sort"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// File is an etcd snapshot opened for reading.
type File struct {
	db       *bolt.DB
	revision int64
	leases   map[int64]int64 // remaining seconds, by the ID of the lease
	keys     []keyLocation   // in ascending order
	others   int64
}

// keyLocation is the position of the newest version of a key.
type keyLocation struct {
	key string
	at  revision
}

// lockTimeout limits the wait for another process that has locked the file.
const lockTimeout = time.Second

// Open reads the list of keys below prefix. The SHA-256 of the file is verified. A file without one, such as a
// copy of a member's database, is refused unless skipHash is set. A key in which a dot follows the prefix is not of a resource, and counts
// as one of the others. With skipHash, only damage that prevents reading
// is detected.
func Open(path, prefix string, skipHash bool) (f *File, err error) {
	if !skipHash {
		if err := verifyHash(path); err != nil {
			return nil, err
		}
	}
	db, err := recoverDamage(func() (*bolt.DB, error) {
		return bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true, Timeout: lockTimeout})
	})
	if err != nil {
		return nil, err
	}
	f = &File{db: db}
	_, err = recoverDamage(func() (struct{}, error) {
		return struct{}{}, db.View(func(tx *bolt.Tx) error {
			return errors.Join(f.readMeta(tx), f.readLeases(tx), f.locate(tx, prefix))
		})
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return f, nil
}

// recoverDamage calls read and returns a panic or a memory fault as an error, because both can happen when a damaged
// file is read through a memory map.
func recoverDamage[T any](read func() (T, error)) (result T, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = damagedError("%v", r)
		}
	}()
	return read()
}

// verifyHash verifies the SHA-256 at the end of the file.
func verifyHash(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	const sector = 512
	size := info.Size() - hashLength
	if size <= 0 || size%sector != 0 {
		return errors.New(
			"the file has no SHA-256 at its end: it is no etcd snapshot, or a copy of a member's database " +
				"(then use --skip-hash-check)",
		)
	}
	h := sha256.New()
	if _, err := io.CopyN(h, f, size); err != nil {
		return err
	}
	want, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	if !bytes.Equal(h.Sum(nil), want) {
		return damagedError("its SHA-256 is wrong")
	}
	return nil
}

// readMeta sets the revision to the one of the last compaction; locate raises it to the newest version.
func (f *File) readMeta(tx *bolt.Tx) error {
	f.revision = 1
	meta := tx.Bucket([]byte(bucketMeta))
	if meta == nil {
		return damagedError("it has no bucket %q", bucketMeta)
	}
	for _, name := range []string{metaScheduledCompact, metaFinishedCompact} {
		if v := meta.Get([]byte(name)); v != nil {
			at, _, err := parseRevision(v)
			if err != nil {
				return err
			}
			f.revision = max(f.revision, at.main)
		}
	}
	return nil
}

// readLeases reads the remaining times of all leases.
func (f *File) readLeases(tx *bolt.Tx) error {
	f.leases = map[int64]int64{}
	b := tx.Bucket([]byte(bucketLease))
	if b == nil {
		return nil
	}
	return b.ForEach(func(_, v []byte) error {
		l, err := decodeLease(v)
		f.leases[l.id] = l.secondsLeft()
		return err
	})
}

// locate finds the newest version of each key. The database contains the versions in the order of their revisions.
func (f *File) locate(tx *bolt.Tx, prefix string) error {
	b := tx.Bucket([]byte(bucketKey))
	if b == nil {
		return damagedError("it has no bucket %q", bucketKey)
	}
	newest := map[string]revision{}
	others := map[string]bool{}
	err := b.ForEach(func(k, v []byte) error {
		at, tombstone, err := parseRevision(k)
		if err != nil {
			return err
		}
		f.revision = max(f.revision, at.main)
		var kv mvccpb.KeyValue
		if err := unmarshal(v, &kv); err != nil {
			return damagedError("revision %d: %v", at.main, err)
		}
		key := string(kv.Key)
		rest, below := strings.CutPrefix(key, prefix)
		below = below && !strings.HasPrefix(rest, ".")
		switch {
		case !below && tombstone:
			delete(others, key)
		case !below:
			others[key] = true
		case tombstone:
			delete(newest, key)
		default:
			newest[key] = at
		}
		return nil
	})
	if err != nil {
		return err
	}
	f.others = int64(len(others))
	f.keys = make([]keyLocation, 0, len(newest))
	for key, at := range newest {
		f.keys = append(f.keys, keyLocation{key, at})
	}
	sort.Slice(f.keys, func(i, j int) bool { return f.keys[i].key < f.keys[j].key })
	return nil
}

// Revision returns the revision of the member.
func (f *File) Revision() int64 { return f.revision }

// Len returns the number of keys below the prefix, and Others the number of other keys.
func (f *File) Len() int64    { return int64(len(f.keys)) }
func (f *File) Others() int64 { return f.others }

// Entries returns the keys below the prefix in ascending order. If an error occurs, it is the last element of the
// sequence.
func (f *File) Entries() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		tx, err := f.db.Begin(false)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		defer func() { _ = tx.Rollback() }() // the transaction only reads
		b := tx.Bucket([]byte(bucketKey))
		for _, l := range f.keys {
			e, err := recoverDamage(func() (Entry, error) { return f.entry(b, l) })
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// entry reads the newest version of a key, and the remaining time of its lease.
func (f *File) entry(b *bolt.Bucket, l keyLocation) (Entry, error) {
	var kv mvccpb.KeyValue
	if err := unmarshal(b.Get(l.at.bytes()), &kv); err != nil {
		return Entry{}, damagedError("revision %d: %v", l.at.main, err)
	}
	if kv.ModRevision != l.at.main {
		return Entry{}, damagedError("key %q says that it is of revision %d and lies at %d", l.key, kv.ModRevision, l.at.main)
	}
	e := Entry{Key: l.key, Value: kv.Value, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision}
	if kv.Lease != 0 {
		left, ok := f.leases[kv.Lease]
		if !ok || left <= 0 {
			return Entry{}, damagedError("key %q has the lease %x, which is not there", l.key, kv.Lease)
		}
		e.TTL = left
	}
	return e, nil
}

// Close closes the file.
func (f *File) Close() error {
	if err := f.db.Close(); err != nil {
		return fmt.Errorf("closing the etcd snapshot: %w", err)
	}
	return nil
}

// unmarshal decodes a message of etcd. It does not use the methods of etcd's types for that, because they exist
// only up to etcd 3.6.
func unmarshal(data []byte, message protoadapt.MessageV1) error {
	return proto.Unmarshal(data, protoadapt.MessageV2Of(message))
}
