package storage

import (
	"context"
	"strings"
	"time"
)

// History is an optional interface of a Store that keeps versions of keys longer than they can be watched.
//
// Two limits say which old revisions of a Store can be read. Revisions above the compaction revision
// (Stats.CompactedRevision) can be read by Get and Range and can be watched. Revisions above the floor of their
// scope can be read by the methods below. The floor of a scope is never above the compaction revision, and it only
// rises.
type History interface {
	// Floor returns the lowest revision at which the state of all keys in the scope can be read.
	Floor(scope Scope) int64

	// GetAt reads a key at a revision, like Get. The key must be in the scope. It fails with *CompactedError if
	// the revision is below the floor of the scope.
	GetAt(ctx context.Context, scope Scope, key string, revision int64) (Entry, error)

	// RangeAt reads a range at r.Revision, like Range. r.Revision must not be 0, nor below the floor of the scope.
	// The range must be in the scope.
	RangeAt(ctx context.Context, scope Scope, r RangeRequest) (RangeResult, error)

	// Versions returns the changes of a key, the newest first. It returns all changes that are kept, even those
	// below the floor of a larger scope that contains the key. more is true if older changes are kept that the
	// limits of the request left out.
	Versions(ctx context.Context, r VersionsRequest) (list []Change, more bool, err error)

	// Changes returns the kept changes of the keys with a prefix. They are in the order of revisions or, if
	// r.Backwards is set, from the newest revision to the oldest. The changes of one revision are always in the
	// order of their transaction.
	Changes(ctx context.Context, r ChangesRequest) (ChangesResult, error)

	// RevisionAt returns a revision at which the keys of the scope are as they were at t. The prefix of the scope
	// may be a whole key, which does not end with a slash. RevisionAt fails with *CompactedError if that state is
	// not kept. Times are those of the wall clock when a change was written, in milliseconds. If that clock was
	// set back, several revisions may have been current at t; RevisionAt returns one of them.
	RevisionAt(ctx context.Context, scope Scope, t time.Time) (int64, error)

	// WrittenAt returns when a revision was written, and by whom. The time is zero if that is not known any more.
	WrittenAt(ctx context.Context, revision int64) (time.Time, []byte, error)

	// Kept returns figures about what is kept beyond the compaction revision. The call is cheap.
	Kept() Kept
}

// Scope is a set of keys: those with a prefix. If Namespace is not empty, the last element but one of the key must
// also be Namespace. Example: {"/registry/pods/", "a"} has /registry/pods/a/x.
type Scope struct{ Prefix, Namespace string }

// Has reports whether the scope has a key.
func (s Scope) Has(key string) bool {
	if !strings.HasPrefix(key, s.Prefix) {
		return false
	}
	if s.Namespace == "" {
		return true
	}
	end := strings.LastIndexByte(key, '/')
	if end < 0 {
		return false
	}
	return key[strings.LastIndexByte(key[:end], '/')+1:end] == s.Namespace
}

// Overlaps reports whether there may be a key that is in both scopes.
func (s Scope) Overlaps(o Scope) bool {
	if s.Namespace != "" && o.Namespace != "" && s.Namespace != o.Namespace {
		return false
	}
	return strings.HasPrefix(s.Prefix, o.Prefix) || strings.HasPrefix(o.Prefix, s.Prefix)
}

// Covers reports whether every key of o is in s.
func (s Scope) Covers(o Scope) bool {
	return strings.HasPrefix(o.Prefix, s.Prefix) && (s.Namespace == "" || s.Namespace == o.Namespace)
}

// VersionsRequest asks for the changes of Key at revisions below Before (0 means all).
type VersionsRequest struct {
	Key    string
	Before int64
	// Limit is the largest number of changes. Bytes limits the size of the values: the result ends after the
	// change with which they reach this size, but has at least two changes.
	Limit, Bytes int
}

// Change is a change of a key, as a store keeps it.
type Change struct {
	// Event is the change. Event.Prev has only revisions; for the previous value, read the previous change, if it
	// is kept.
	Event
	// Time is when the change was written, zero if that is not known any more.
	Time time.Time
	// By is Txn.By of the transaction.
	By []byte
	// Deadline is the time at which the key expires after the change, in Unix milliseconds of the wall clock; 0 means never, and in
	// the result of Versions that it is not known.
	Deadline int64
}

// ChangesRequest asks for changes of keys with Prefix at revisions after After, up to Through (0 means the current one), and
// not before Since.
type ChangesRequest struct {
	Prefix         string
	After, Through int64
	Since          time.Time
	// Limit is the largest number of changes; 0 means no limit. The result may exceed it, because it always has
	// all changes of its last revision.
	Limit int
	// Bytes ends the result after the revision with which the values have that many bytes together; 0 means no limit.
	Bytes int
	// KeysOnly leaves the values out.
	KeysOnly bool
	// Examine is the largest number of revisions that are examined, also of other keys; 0 means no limit.
	Examine int
	// Backwards returns the changes from Through down to After.
	Backwards bool
}

// ChangesResult is a part of the changes that were asked for.
type ChangesResult struct {
	Changes []Change
	// Through is the last revision that was examined. The next request must have this value as After or, if it
	// reads backwards, Through-1 as Through.
	Through int64
	// After is the revision after which the range begins: ChangesRequest.After, or a later one because of Since.
	After int64
	// Examined is the number of revisions that were examined.
	Examined int
	// More is true if there may be more changes up to ChangesRequest.Through.
	More bool
}

// Kept contains figures about versions that are kept beyond the compaction revision.
type Kept struct {
	Bytes int64 // the size of their keys, values and log records, before compression
	// GivenUp has the bytes of versions that this process has removed before the end of their retention. The key
	// is a namespace, or a resource without namespaces. The map has a bounded number of keys, and must not be
	// changed.
	GivenUp map[string]int64
}

// Retention says which versions are kept after the compaction revision has passed them.
type Retention struct {
	// Rules are tried in their order. The first rule whose scope contains the key applies. A key is not kept if it
	// has no rule, or if the rule keeps it for less time than it can be watched.
	Rules []RetentionRule
	// Bytes limits the space of the kept history on the disk; above it, the namespaces with the most history lose
	// versions first. 0 means 1 GiB or a tenth of the disk, whichever is less, and 64 MiB for a store in memory; a
	// negative number means no limit.
	Bytes int64
}

// RetentionRule keeps the versions of the keys of a scope for the time Keep after they were replaced.
type RetentionRule struct {
	Scope
	Keep time.Duration
}

// Keep returns how long versions of a key are kept.
func (r *Retention) Keep(key string) time.Duration {
	for i := range r.Rules {
		if r.Rules[i].Has(key) {
			return r.Rules[i].Keep
		}
	}
	return 0
}
