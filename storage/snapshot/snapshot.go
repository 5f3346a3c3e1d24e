package snapshot

import (
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// Version is the version of the format that this package writes, and the newest
// that it reads.
const Version = 1

const (
	magic       = "KEELSON-SNAPSHOT "
	magicLength = len(magic) + 2 // the version and a new line

	kindHeader  = 'h'
	kindEntries = 'e'
	kindTotals  = 't'

	hashLength = 32

	// blockTarget is how large a block of entries grows; a larger entry has a
	// block of its own.
	blockTarget = 256 << 10
	// maxPayload bounds a block, and with it an entry.
	maxPayload = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	// ErrDamaged says that a file is not what was written: something in it was
	// changed, or its end is missing.
	ErrDamaged = errors.New("the snapshot is damaged")
	// ErrNotSnapshot says that a file never was a snapshot.
	ErrNotSnapshot = errors.New("not a Keelson snapshot")
	// ErrNewer says that a later version of the program wrote the file.
	ErrNewer = errors.New("the snapshot is of a newer format")
)

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// Header says what a snapshot is of.
type Header struct {
	// Revision is the revision whose state it is.
	Revision int64 `json:"revision"`
	// Created is when that was the newest state.
	Created time.Time `json:"created"`
	// Program wrote the file.
	Program string `json:"program,omitempty"`
}

// Totals are counted by whoever writes a snapshot, and checked by its readers.
type Totals struct {
	Entries int64 `json:"entries"`
	// Bytes are those of keys and values.
	Bytes int64 `json:"bytes"`
}

// Entry is one key with its value.
type Entry struct {
	Key                         string
	Value                       []byte
	CreateRevision, ModRevision int64
	// Deadline is when the key expires, in Unix milliseconds; 0 is never.
	Deadline int64
}

// validate says whether e can follow the key last in a snapshot of revision.
func (e *Entry) validate(last string, revision int64) error {
	switch {
	case e.Key <= last:
		return fmt.Errorf("key %q does not come after %q", e.Key, last)
	case e.CreateRevision < 1 || e.CreateRevision > e.ModRevision || e.ModRevision > revision:
		return fmt.Errorf(
			"key %q was made at revision %d and changed at %d, in a snapshot of revision %d", e.Key, e.CreateRevision,
			e.ModRevision, revision,
		)
	case e.Deadline < 0:
		return fmt.Errorf("key %q has a negative deadline", e.Key)
	}
	return nil
}

func (t *Totals) add(e *Entry) {
	t.Entries++
	t.Bytes += int64(len(e.Key) + len(e.Value))
}
