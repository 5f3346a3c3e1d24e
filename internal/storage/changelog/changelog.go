// Package changelog is the file format of the changes of a store. A file is a segment: all changes after one revision, up to and
// including another one. A snapshot (package snapshot) and the segments after it give the store at each revision since then;
// embedded.Replay puts them together. The package reads and writes streams and does not depend on a store.
//
// # Format
//
// A segment is compressed with Zstandard as a whole, so that the versions of an object, which are mostly the same, take little
// space together. Inside it is a file of blocks (package blockfile):
//
//	KEELSON-CHANGES 1\n
//	block 'h'     the header, JSON (Header)
//	block 'c' ... transactions, in the order of their revisions
//	block 't'     the totals, JSON (Totals)
//	32 bytes      SHA-256 of all bytes before
//
// A transaction is
//
//	uvarint revision, less the one of the transaction before (of the first one, less Header.After)
//	varint time in Unix milliseconds, less the one of the transaction before (of the first one: the time itself)
//	uvarint length of the author, author (storage.Txn.By)
//	uvarint number of operations, at least 1
//
// and then for each operation
//
//	flags (one byte): 1 for a deletion, 2 for a key that expires
//	uvarint key length, key
//	uvarint deadline in Unix milliseconds of the wall clock, if the key expires
//	uvarint value length, value, unless it is a deletion
//
// A transaction is never split between blocks. A time of 0 means that the time is not known.
//
// # Order of the files
//
// changelog.go (types and errors), write.go (Writer), read.go (Reader), name.go (names of files).
package changelog

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	line = "KEELSON-CHANGES 1\n"

	kindHeader  = 'h'
	kindChanges = 'c'
	kindTotals  = 't'

	flagDeleted  = 1 << 0
	flagDeadline = 1 << 1
)

var (
	// ErrDamaged is the error of a segment that was changed or truncated after it was written.
	ErrDamaged = errors.New("the segment of changes is damaged")
	// ErrNewer is the error of a segment that a later version of the program wrote.
	ErrNewer = errors.New("the segment of changes is of a newer format")
)

// Header describes a segment.
type Header struct {
	// Epoch is the number of the term in which the writer of the segment was the only one that could write to the store.
	Epoch int64 `json:"epoch"`
	// After is the revision before the first one of the segment.
	After int64 `json:"after"`
	// Program is the program that wrote the segment.
	Program string `json:"program,omitempty"`
}

// Totals are counted by the writer of a segment and verified by its readers.
type Totals struct {
	// Through is the last revision of the segment: it has all changes after Header.After up to Through. It may be higher than the
	// revision of the last transaction.
	Through int64 `json:"through"`
	// Transactions and Operations are their numbers. Bytes is the size of the keys, values and authors.
	Transactions int64 `json:"transactions"`
	Operations   int64 `json:"operations"`
	Bytes        int64 `json:"bytes"`
	// First and Last are the times of the first and of the last transaction, in Unix milliseconds; 0 if there is none.
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// Transaction is what one revision changed.
type Transaction struct {
	Revision int64
	// Time is when it was written, to the millisecond; zero if that is not known.
	Time time.Time
	// By is storage.Txn.By.
	By         []byte
	Operations []Operation
}

// Operation is the change of one key.
type Operation struct {
	Key     string
	Deleted bool
	Value   []byte // nil for a deletion
	// Deadline is the time at which the key expires, in Unix milliseconds of the wall clock; 0 means never.
	Deadline int64
}

// validate returns an error if the transaction cannot follow the revision after.
func (t *Transaction) validate(after int64) error {
	if t.Revision <= after {
		return fmt.Errorf("revision %d does not come after %d", t.Revision, after)
	}
	if len(t.Operations) == 0 {
		return fmt.Errorf("revision %d changes nothing", t.Revision)
	}
	for i := range t.Operations {
		op := &t.Operations[i]
		switch {
		case op.Key == "" || strings.IndexByte(op.Key, 0) >= 0:
			return fmt.Errorf("revision %d has the key %q", t.Revision, op.Key)
		case op.Deleted && (len(op.Value) > 0 || op.Deadline != 0):
			return fmt.Errorf("revision %d deletes %q and gives it a value", t.Revision, op.Key)
		case op.Deadline < 0:
			return fmt.Errorf("revision %d gives %q a negative deadline", t.Revision, op.Key)
		}
	}
	return nil
}

func (t *Totals) add(x *Transaction) {
	t.Transactions++
	t.Operations += int64(len(x.Operations))
	t.Bytes += int64(len(x.By))
	for i := range x.Operations {
		t.Bytes += int64(len(x.Operations[i].Key) + len(x.Operations[i].Value))
	}
	if ms := milliseconds(x.Time); ms != 0 {
		t.Last = ms
		if t.First == 0 {
			t.First = ms
		}
	}
}

// milliseconds returns a time in Unix milliseconds, 0 for one that is not known.
func milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
