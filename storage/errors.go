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

// CompactedError is the error of a read at a revision that was compacted.
type CompactedError struct {
	Revision  int64 // asked for
	Compacted int64 // the oldest revision that can be read
}

func (e *CompactedError) Error() string {
	return fmt.Sprintf("storage: revision %d has been compacted (oldest is %d)", e.Revision, e.Compacted)
}

// FutureRevisionError is the error of a read at a revision that the store has not reached.
type FutureRevisionError struct {
	Revision int64 // asked for
	Current  int64
}

func (e *FutureRevisionError) Error() string {
	return fmt.Sprintf("storage: revision %d is in the future (current is %d)", e.Revision, e.Current)
}

// ConflictError is the error of a transaction; it names the condition that did not hold.
type ConflictError struct {
	Condition Condition
	// Current is the key's entry when the condition was checked; ModRevision 0
	// if it does not exist.
	Current Entry
	// Revision is a revision at which Current is the key's latest entry.
	Revision int64
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf(
		"storage: %s is at revision %d, not %d", e.Condition.Key, e.Current.ModRevision, e.Condition.ModRevision,
	)
}

// PendingError is the error of a stored value that cannot be decoded without a call to another program, such as the
// decryption of a key by a KMS plug-in. The call has not been made; Obtain makes it and waits.
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

// maxObtain is how often Waiting calls Obtain for one value.
const maxObtain = 3

// Waiting calls read until it does not fail with a *PendingError, and calls Obtain of that error in between. read
// must not block. It returns the last error of read, or the error of Obtain.
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
