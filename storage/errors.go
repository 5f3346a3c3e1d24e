package storage

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is returned by every method of a closed Store and by its Watchers.
	ErrClosed = errors.New("storage: closed")
	// ErrFailed marks a store that could not make a commit durable. The process
	// must stop: what is on disk is right, what was in flight is unknown.
	ErrFailed = errors.New("storage: failed, a write could not be made durable")
	// ErrNoSpace refuses a write because the space left is below the reserve.
	// Nothing changed; reads go on.
	ErrNoSpace = errors.New("storage: no space left for writes")
	// ErrTooLarge refuses a transaction above the store's size limit.
	ErrTooLarge = errors.New("storage: transaction too large")
)

// CompactedError says that the revision asked for is no longer there.
type CompactedError struct {
	Revision  int64 // asked for
	Compacted int64 // the oldest revision that can be read
}

func (e *CompactedError) Error() string {
	return fmt.Sprintf("storage: revision %d has been compacted (oldest is %d)", e.Revision, e.Compacted)
}

// FutureRevisionError says that the revision asked for has not happened yet.
type FutureRevisionError struct {
	Revision int64 // asked for
	Current  int64
}

func (e *FutureRevisionError) Error() string {
	return fmt.Sprintf("storage: revision %d is in the future (current is %d)", e.Revision, e.Current)
}

// ConflictError says which condition of a transaction did not hold.
type ConflictError struct {
	Condition Condition
	// Current is the key's entry when the condition was checked; ModRevision 0
	// if it does not exist.
	Current Entry
	// Revision is a revision at which Current is the key's latest entry.
	Revision int64
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("storage: %s is at revision %d, not %d", e.Condition.Key, e.Current.ModRevision, e.Condition.ModRevision)
}
