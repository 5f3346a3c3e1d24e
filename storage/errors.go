package storage

import (
	"context"
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

// PendingError says that a stored value cannot be read yet: it needs something that
// another program has to be asked for, such as the decrypted key of a KMS plug-in.
// Whoever gets it has not waited, and may wait with Obtain.
type PendingError struct {
	// Need names what the value needs. All values with the same Need can be read once
	// it was obtained.
	Need string
	// Obtain asks for it and waits for the answer until ctx ends. Callers that come
	// while a request for the same Need is under way share its answer. After nil the
	// value can be read.
	Obtain func(ctx context.Context) error
}

func (e *PendingError) Error() string { return "waiting for " + e.Need }

// maxObtain bounds how often Waiting obtains something for one value.
const maxObtain = 3

// Waiting calls read, which does not wait, until it does not fail with a
// *PendingError; in between it obtains what read needs. The error is the last one of
// read, or the one of Obtain.
func Waiting(ctx context.Context, read func() error) error {
	for tries := 0; ; tries++ {
		err := read()
		var pending *PendingError
		if tries == maxObtain || !errors.As(err, &pending) {
			return err
		}
		if err := pending.Obtain(ctx); err != nil {
			return err
		}
	}
}
