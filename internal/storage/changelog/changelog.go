// Package changelog is the file format of the changes of a store. A file is a segment: all changes after one revision, up to and
// including another one. A snapshot (package snapshot) and the segments after it give the store at each revision since then;
// embedded.Replay puts them together. The package reads and writes streams and does not depend on a store.
//
// # Format
//
// A segment is a file of blocks (package blockfile):
//
//	KEELSON-CHANGES 2\n
//	block 'h'     the header, JSON (Header)
//	block 'f' ... the head of a frame, JSON (frame), each followed by
//	block 'c'     the transactions of the frame, in the order of their revisions, compressed with Zstandard
//	block 't'     the totals, JSON (Totals)
//	32 bytes      SHA-256 of all bytes before
//
// A frame has some megabytes of transactions if there are so many, because the versions of an object, which are mostly the same, take
// little space together. It can be read without the frames before it, so that large frames are copied as they are when segments are merged.
//
// A transaction is
//
//	uvarint revision, less the one of the transaction before (of the first one, less frame.After)
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
// A time of 0 means that the time is not known.
//
// # Order of the files
//
// changelog.go (types and errors), write.go (Writer), read.go (Reader), name.go (names of files).
package changelog

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	line = "KEELSON-CHANGES 2\n"

	kindHeader  = 'h'
	kindFrame   = 'f'
	kindChanges = 'c'
	kindTotals  = 't'

	flagDeleted  = 1 << 0
	flagDeadline = 1 << 1
)

var (
	// ErrDamaged is the error of a segment that was changed or truncated after it was written.
	ErrDamaged = errors.New("the segment of changes is damaged")
	// ErrOtherFormat is the error of a segment that a later version of the program wrote, or one before the first release.
	ErrOtherFormat = errors.New("the segment of changes is of another format, which this version of the program cannot read")
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

// frame is the head of a frame.
type frame struct {
	// After is a revision before the first one of the frame, and not before the last one of the frame before.
	After int64 `json:"after"`
	// Size is the size of its transactions before compression, in bytes.
	Size int `json:"size"`
	// Totals are those of its transactions. Through is the revision of the last one.
	Totals
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

// add adds those of a transaction that follows.
func (t *Totals) add(x *Transaction) {
	one := Totals{Through: x.Revision, Transactions: 1, Operations: int64(len(x.Operations)), Bytes: int64(len(x.By))}
	for i := range x.Operations {
		one.Bytes += int64(len(x.Operations[i].Key) + len(x.Operations[i].Value))
	}
	one.First = milliseconds(x.Time)
	one.Last = one.First
	t.append(one)
}

// append adds those of what follows.
func (t *Totals) append(o Totals) {
	t.Through = o.Through
	t.Transactions += o.Transactions
	t.Operations += o.Operations
	t.Bytes += o.Bytes
	t.First, t.Last = cmp.Or(t.First, o.First), cmp.Or(o.Last, t.Last)
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
