package storage

import (
	"context"
	"errors"
	"fmt"
)

var (
	// ErrClosed is returned by every method of a closed Store and by its Watchers.
	ErrClosed = errors.New("storage: closed")
	// ErrFailed is the error of a store that could not make a commit durable. The process must stop. The data on
	// the disk is correct; it is not known whether it contains the commits that were in progress.
	ErrFailed = errors.New("storage: failed, a write could not be made durable")
	// ErrNoSpace is the error of a write when the free space is below the reserve. The write has no effect, and reads
	// continue.
	ErrNoSpace = errors.New("storage: no space left for writes")
	// ErrReadOnly is the error of a write to a store that only follows another one. The write has no effect.
	ErrReadOnly = errors.New("storage: the store follows another one and takes no writes")
	// ErrTooLarge is the error of a transaction that is larger than the store allows.
	ErrTooLarge = errors.New("storage: transaction too large")
)

// CompactedError is the error of a read at a revision that was compacted.
type CompactedError struct {
	Revision  int64 // the requested revision
	Compacted int64 // the oldest revision that can be read
}

func (e *CompactedError) Error() string {
	return fmt.Sprintf("storage: revision %d has been compacted (oldest is %d)", e.Revision, e.Compacted)
}

// NoPastError is the error of a read of the past while the store does not have the past at all.
type NoPastError struct{ Cause error }

func (e *NoPastError) Error() string {
	return fmt.Sprintf("this server does not have the past of the data at this time: %v", e.Cause)
}

// Unwrap returns why.
func (e *NoPastError) Unwrap() error { return e.Cause }

// FutureRevisionError is the error of a read at a revision that the store has not reached.
type FutureRevisionError struct {
	Revision int64 // the requested revision
	Current  int64
}

func (e *FutureRevisionError) Error() string {
	return fmt.Sprintf("storage: revision %d is in the future (current is %d)", e.Revision, e.Current)
}

// ConflictError is the error of a transaction that had a condition which did not hold.
type ConflictError struct {
	Condition Condition
	// Current is the entry of the key when the condition was checked; its ModRevision is 0 if the key does not exist.
	Current Entry
	// Revision is a revision of the store at which Current was the latest entry of the key.
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
	// Need describes what the value needs. All values with the same Need can be read after one call of Obtain.
	Need string
	// Obtain makes the call and waits for the answer until ctx ends. Concurrent calls with the same Need share one
	// request. After Obtain has returned nil, the value can be read.
	Obtain func(ctx context.Context) error
}

func (e *PendingError) Error() string { return "waiting for " + e.Need }

// maxObtainCalls is the largest number of calls of Obtain that RetryPending makes.
const maxObtainCalls = 3

// RetryPending calls read until it does not fail with a *PendingError, and calls Obtain of that error in between. read
// must not block. RetryPending returns the last error of read, or the error of Obtain.
func RetryPending(ctx context.Context, read func() error) error {
	for tries := 0; ; tries++ {
		err := read()
		var pending *PendingError
		if tries == maxObtainCalls || !errors.As(err, &pending) {
			return err
		}
		if err := pending.Obtain(ctx); err != nil {
			return err
		}
	}
}

// DamagedError is the error of an operation that needs data on the disk which does not match its checksum. Operations that need other
// data are not affected.
type DamagedError struct {
	Detail string // where the damage is, in one line
}

func (e *DamagedError) Error() string {
	return "the stored data is damaged on the disk of the server (`keelson check` and `keelson repair`, while it is stopped, say what " +
		"is lost and keep the rest): " + e.Detail
}
