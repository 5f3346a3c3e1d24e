package snapshot

import (
	"errors"
	"fmt"
	"time"
)

// Version is the newest version of the format. Snapshots without past are written in version 1.
const Version = 2

const (
	magic       = "KEELSON-SNAPSHOT "
	magicLength = len(magic) + 2 // magic, the version and a line break

	kindHeader  = 'h'
	kindEntries = 'e'
	kindPast    = 'p'
	kindTotals  = 't'
)

var (
	// ErrDamaged is the error of a file that was changed or truncated after it was written.
	ErrDamaged = errors.New("the snapshot is damaged")
	// ErrNotSnapshot is the error of a file that is not a snapshot.
	ErrNotSnapshot = errors.New("not a Keelson snapshot")
	// ErrNewer is the error of a file that a later version of the program wrote.
	ErrNewer = errors.New("the snapshot is of a newer format")
)

// Header describes a snapshot.
type Header struct {
	// Revision is the revision of the state.
	Revision int64 `json:"revision"`
	// Created is the time at which the state was the newest one.
	Created time.Time `json:"created"`
	// Program is the program that wrote the file.
	Program string `json:"program,omitempty"`
	// Files are the keys and certificates of the server, by the path that they get in the data directory after a
	// restore. A snapshot that is not encrypted has none.
	Files map[string][]byte `json:"files,omitempty"`
	// PastFormat is the version of the storage engine's encoding that the records of the past have, 0 if there are
	// none.
	PastFormat int64 `json:"pastFormat,omitempty"`
}

// Version returns the version of the format of the snapshot.
func (h *Header) Version() int {
	if h.PastFormat > 0 {
		return Version
	}
	return 1
}

// Totals are counted by the writer of a snapshot and verified by its readers.
type Totals struct {
	Entries int64 `json:"entries"`
	// Bytes is the total size of keys and values.
	Bytes int64 `json:"bytes"`
	// Past is the number of records of the past, PastBytes the size of their keys and values.
	Past      int64 `json:"past,omitempty"`
	PastBytes int64 `json:"pastBytes,omitempty"`
}

// Entry is one key with its value.
type Entry struct {
	Key                         string
	Value                       []byte
	CreateRevision, ModRevision int64
	// Deadline is the time at which the key expires, in Unix milliseconds; 0 means never.
	Deadline int64
}

// Past is a record of earlier versions that the store keeps in addition to its entries, in the encoding of its
// engine.
type Past struct{ Key, Value []byte }

// validate returns an error if e cannot follow the key last in a snapshot of revision.
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

func (t *Totals) addPast(p Past) {
	t.Past++
	t.PastBytes += int64(len(p.Key) + len(p.Value))
}
