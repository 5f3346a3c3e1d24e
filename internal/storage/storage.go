// Package storage defines the interface of a store: a key-value space with revisions, like that of etcd
// (https://etcd.io/docs/v3.6/learning/data_model/).
//
// The package contains the interface (storage.go), its errors and RetryPending (errors.go), and optional
// interfaces (capability.go and history.go). Each
// backend is a package of its own, and all backends pass the suite in internal/storage/storagetest.
package storage

import "context"

// Store is a key-value space in which every change has a revision.
//
// Ordering. Revisions are positive and strictly increase. All operations of one Txn share one revision. A change is
// durable before it can be observed: before Commit returns, before Get, Range or Revision reflect it and before a
// Watcher delivers it. After Commit has returned revision r, Revision returns at least r, on every replica of the
// store.
//
// Ownership. Byte slices that are passed to a Store belong to it afterwards and must not be changed. Byte slices that a
// Store returns are shared: the caller may keep them without limit and must not change them.
//
// Errors. Reads below the compaction revision fail with *CompactedError, reads above the current revision with
// *FutureRevisionError. After Close every method fails with ErrClosed. A store that could not make a commit durable
// fails that commit and every later one with ErrFailed and must be closed; it never reports success for a change that
// may be lost. Commit has had no effect if its error is a *ConflictError, ErrNoSpace, ErrReadOnly or ErrTooLarge. After any
// other error of Commit it is unknown whether the transaction took effect.
//
// All methods may be called concurrently. When the context is cancelled, the call ends with the error of the context. A
// Commit that is cancelled after it was queued may still take effect.
type Store interface {
	// Get returns the entry of key as it was at revision, or the latest one if revision is 0. The second result is
	// the revision at which the entry was read. For a key that does not exist, the Entry has ModRevision 0 and
	// there is no error.
	Get(ctx context.Context, key string, revision int64) (Entry, int64, error)

	// Range returns the entries from Start (inclusive) to End (exclusive), in ascending byte order of their keys, all at
	// the same revision.
	Range(ctx context.Context, r RangeRequest) (RangeResult, error)

	// Commit applies the transaction if all its conditions hold, and returns its revision. If a condition does not hold,
	// nothing changes and the error is a *ConflictError with the current entry of the first condition that failed.
	Commit(ctx context.Context, txn Txn) (int64, error)

	// Watch delivers every change of a key with the given prefix, beginning with revision from (inclusive); 0
	// means the next change. If from is at or below the compaction revision, it fails with *CompactedError. If
	// other processes compact the store too, the first call of Next may return that error instead. A watch from
	// exactly the compaction revision may then also succeed, but miss the deletions at that revision. If from is
	// in the future, the watcher waits for it.
	Watch(ctx context.Context, prefix string, from int64) (Watcher, error)

	// Revision returns the current revision. The read is consistent: the result is at least the revision of every Commit
	// that returned before the call, on any replica. The revision of an empty store is 1.
	Revision(ctx context.Context) (int64, error)

	// Compact deletes the versions that were overwritten or deleted at or before revision. Afterwards reads below
	// revision, and watches from it or from before it, fail with *CompactedError. A revision that is not above the last
	// compaction is not an error; one in the future is a *FutureRevisionError.
	Compact(ctx context.Context, revision int64) error

	// Stats returns figures about the store. The call is cheap and the figures may be slightly old.
	Stats() Stats

	// Close closes the store. Queued commits finish or fail with ErrClosed. Watchers end with ErrClosed. A second call is
	// no error.
	Close() error
}

// Watcher is a cursor in the sequence of changes of the store. It is used by one goroutine; only Close may be
// called from another one. A slow watcher costs the store only the work of reading old changes again.
type Watcher interface {
	// Next waits for the next batch and returns it. A batch contains all matching changes of each of its revisions. It may
	// have no events and only advance the revision. If compaction has overtaken the cursor, Next fails with
	// *CompactedError; it never skips changes. After an error the Watcher cannot be used any more.
	Next(ctx context.Context) (Batch, error)

	// Close ends the watch. A call of Next that is in progress returns ErrClosed.
	Close() error
}

// Batch is a sequence of changes in the order of revisions.
type Batch struct {
	Events []Event
	// Revision is the revision up to which (inclusive) all matching changes
	// have been delivered with this batch and those before it.
	Revision int64
}

// Event is one change of one key. Events of the same revision are in the order of the operations of the transaction.
type Event struct {
	// Entry is the key after the change. For a deletion it has no Value, and
	// ModRevision is the revision of the deletion.
	Entry Entry
	// Deleted is true if the key was removed, by a client or because its time to live has ended.
	Deleted bool
	// Prev is the entry before the change; its ModRevision is 0 if the key did not exist.
	Prev Entry
	// Lease is the lease of etcd whose end deletes the key. It is 0 if there is none, and in stores without leases.
	Lease int64
}

// Entry is a key with its value and its revisions.
type Entry struct {
	Key            string
	Value          []byte
	ModRevision    int64 // revision of the last change; 0 if the key does not exist
	CreateRevision int64 // revision at which the key was created
}

// RangeRequest is a request for a range of keys.
type RangeRequest struct {
	Start string // first key, inclusive
	End   string // first key after the range; see PrefixEnd. "" means no bound
	// Revision is the revision to read at; 0 is the latest.
	Revision int64
	// Limit is the largest number of entries to return; 0 means no limit.
	Limit int
	// Bytes allows the store to end the result early, after the first entry with which the size of all values
	// reaches this limit. More is then true if there are more keys. 0 means no limit.
	Bytes int
	// CountOnly requests Count without Entries.
	CountOnly bool
	// Uncounted allows the store not to count the keys beyond the limit. Count may then be lower than the number
	// of keys. With CountOnly, it is at least Limit if there are that many keys.
	Uncounted bool
}

// RangeResult is the result of a RangeRequest.
type RangeResult struct {
	Entries []Entry
	// More is true if Limit or Bytes left out entries. With CountOnly, it is true if there are more keys than were
	// counted.
	More bool
	// Count is the number of keys in the range at Revision, independent of the limit, unless the request is Uncounted.
	Count int64
	// Revision is the revision at which the range was read.
	Revision int64
}

// Txn is a set of conditions and a set of operations that take effect together.
type Txn struct {
	Conditions []Condition
	// Ops have distinct keys. A transaction without operations only checks its conditions and returns the current
	// revision. Deleting a key that does not exist is not a change; a transaction with only such deletions gets no new
	// revision.
	Ops []Op
	// By says who makes the transaction, and how. A store with a History keeps it together with the changes; other
	// stores ignore it.
	By []byte
}

// Condition holds if the last change of the key was at ModRevision. ModRevision 0 requires that the key does not exist.
type Condition struct {
	Key         string
	ModRevision int64
}

// Op puts a value under a key, or deletes the key.
type Op struct {
	Key    string
	Value  []byte
	Delete bool
	// TTL is the time to live in seconds. The key is removed by an ordinary deletion, not earlier than TTL seconds
	// after the commit. 0 means no limit. A later put of the key replaces the TTL.
	TTL int64
}

// Put is the operation that stores value under key.
func Put(key string, value []byte) Op { return Op{Key: key, Value: value} }

// Delete is the operation that removes key.
func Delete(key string) Op { return Op{Key: key, Delete: true} }

// Stats contains figures about a store.
type Stats struct {
	Revision          int64 // current revision
	CompactedRevision int64 // the compaction revision
	SizeBytes         int64 // bytes on disk (or in memory), history included
	DamagedFiles      int64 // files in which damage was found since the store was opened
	WrittenBytes      int64 // size of the keys and values that were written since the store was opened
}

// PrefixEnd returns the first key after all keys that begin with prefix, for RangeRequest.End. It returns "" for a
// prefix without such a key ("" or only 0xff bytes), which means no upper bound.
func PrefixEnd(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return prefix[:i] + string([]byte{prefix[i] + 1})
		}
	}
	return ""
}
