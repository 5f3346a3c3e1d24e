// Package storage defines the interface of a store: a key-value space with revisions, like that of etcd
// (https://etcd.io/docs/v3.6/learning/data_model/).
//
// The package has the interface, its errors, and Waiting. Each backend has a package of its own, and all pass the
// suite in storage/storagetest.
package storage

import "context"

// Store is a key-value space in which every change has a revision.
//
// Ordering. Revisions are positive and strictly increase. All operations of one
// Txn share one revision. A change is durable before anything can observe it:
// before Commit returns, before Get, Range or Revision reflect it and before a
// Watcher delivers it. After Commit has returned revision r, Revision returns at
// least r, on every replica of the store.
//
// Ownership. Byte slices handed to a Store belong to it afterwards and must not
// be changed. Byte slices a Store returns are shared: the caller may keep them
// as long as it likes and must not change them.
//
// Errors. Reads below the compaction revision fail with *CompactedError, reads
// above the current one with *FutureRevisionError. After Close every method
// fails with ErrClosed. A store that could not make a commit durable fails that
// commit and every later one with ErrFailed and must be closed: it never
// reports success for what may be lost. An error other than a *ConflictError,
// ErrNoSpace or ErrTooLarge from Commit says nothing about whether the
// transaction took effect.
//
// All methods may be called concurrently. A cancelled context ends the call
// with the context's error; a Commit cancelled after it was queued may still
// take effect.
type Store interface {
	// Get returns the entry of key as it was at revision, or the latest where
	// revision is 0. The second result is the revision that the answer reflects.
	// A key that does not exist is an Entry with ModRevision 0, not an error.
	Get(ctx context.Context, key string, revision int64) (Entry, int64, error)

	// Range returns the entries from Start (inclusive) to End (exclusive), in
	// ascending byte order of their keys, all as of one revision.
	Range(ctx context.Context, r RangeRequest) (RangeResult, error)

	// Commit applies the transaction if all its conditions hold and returns its
	// revision. If one does not, nothing changes and the error is a
	// *ConflictError with the current entry of the first condition that failed.
	Commit(ctx context.Context, txn Txn) (int64, error)

	// Watch delivers every change of a key with the given prefix from revision
	// from (inclusive) on; 0 means from the next change. It, or the first Next of a
	// store that others compact too, fails with *CompactedError when from is at or
	// below the compaction revision. A revision in the future is waited for.
	Watch(ctx context.Context, prefix string, from int64) (Watcher, error)

	// Revision returns the current revision. It is a consistent read: it is at
	// least the revision of every Commit that returned before the call, on any
	// replica. An empty store has revision 1.
	Revision(ctx context.Context) (int64, error)

	// Compact forgets what was overwritten or deleted at or before revision:
	// reads below it and watches from it or before it then fail with
	// *CompactedError. A revision at or below the last compaction is no error;
	// one in the future is a *FutureRevisionError.
	Compact(ctx context.Context, revision int64) error

	// Stats describes the store. It is cheap and may lag behind.
	Stats() Stats

	// Close releases the store. Queued commits finish or fail with ErrClosed;
	// Watchers end with ErrClosed. Closing twice is no error.
	Close() error
}

// Watcher is a cursor into the changes of the store. One goroutine uses it; Close may be called from another. A
// slow watcher costs the store only the history that it has to read again.
type Watcher interface {
	// Next waits for the next batch and returns it. A batch never splits a
	// revision. It may have no events and only move the revision forward. When
	// compaction overtook the cursor it fails with *CompactedError, never with
	// a gap. After an error the Watcher is of no further use.
	Next(ctx context.Context) (Batch, error)

	// Close ends the watch; a Next in flight returns ErrClosed.
	Close() error
}

// Batch is a sequence of changes in the order of revisions.
type Batch struct {
	Events []Event
	// Revision is the revision up to which (inclusive) all matching changes
	// have been delivered with this batch and those before it.
	Revision int64
}

// Event is one change of one key. Within one revision events come in the order
// of the transaction's operations.
type Event struct {
	// Entry is the key after the change. For a deletion it has no Value, and
	// ModRevision is the revision of the deletion.
	Entry Entry
	// Deleted says that the key was removed, by a client or because its time
	// to live ended.
	Deleted bool
	// Prev is the entry before the change; ModRevision 0 if there was none.
	Prev Entry
}

// Entry is a key with its value and its revisions.
type Entry struct {
	Key            string
	Value          []byte
	ModRevision    int64 // revision of the last change; 0: the key does not exist
	CreateRevision int64 // revision at which the key was created
}

// RangeRequest is a request for a range of keys.
type RangeRequest struct {
	Start string // first key, inclusive
	End   string // first key beyond, exclusive; see PrefixEnd
	// Revision is the revision to read at; 0 is the latest.
	Revision int64
	// Limit bounds the entries returned; 0 is no limit.
	Limit int
	// CountOnly asks for Count alone.
	CountOnly bool
	// Uncounted says that what lies beyond the limit need not be gone through: Count
	// may then be less than it is, but with CountOnly not less than the limit.
	Uncounted bool
}

// RangeResult is the result of a RangeRequest.
type RangeResult struct {
	Entries []Entry
	// More says that Limit cut the answer; with CountOnly, that it cut the count.
	More bool
	// Count is the number of keys in the span at Revision, whatever the limit, unless
	// the request is Uncounted.
	Count int64
	// Revision is the revision that the answer reflects.
	Revision int64
}

// Txn is a set of conditions and of operations that take effect together.
type Txn struct {
	Conditions []Condition
	// Ops name distinct keys; a transaction without operations only checks its
	// conditions and returns the current revision. Deleting a key that does
	// not exist is no change; a transaction of only such deletions takes no
	// revision of its own.
	Ops []Op
}

// Condition holds while the key's last change is at ModRevision; 0 demands that
// the key does not exist.
type Condition struct {
	Key         string
	ModRevision int64
}

// Op puts a value under a key, or deletes the key.
type Op struct {
	Key    string
	Value  []byte
	Delete bool
	// TTL removes the key by an ordinary deletion that many seconds after the
	// commit, at the earliest; 0 keeps it. A later put replaces it.
	TTL int64
}

// Put is the operation that stores value under key.
func Put(key string, value []byte) Op { return Op{Key: key, Value: value} }

// Delete is the operation that removes key.
func Delete(key string) Op { return Op{Key: key, Delete: true} }

// Stats describes a store.
type Stats struct {
	Revision          int64 // current revision
	CompactedRevision int64 // reads below this fail
	SizeBytes         int64 // bytes on disk (or in memory), history included
	DamagedFiles      int64 // found since it was opened to be not what was written
}

// PrefixEnd returns the first key after all keys that begin with prefix, for
// RangeRequest.End; "" for a prefix that has none ("" or only 0xff bytes), which
// means no upper bound.
func PrefixEnd(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return prefix[:i] + string([]byte{prefix[i] + 1})
		}
	}
	return ""
}
