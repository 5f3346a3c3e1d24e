package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
)

// The records of the Pebble database, by the first byte of their keys:
//
//	v<key>\x00<^revision>  one version of a key: a header, then the value
//	l<revision>            the log record of a revision: when and by whom it was written, and the keys that it changed, in
//	                       the order of the operations
//	e<deadline><key>       expiry index: a key that expires, by store time; the value is its mod revision
//	m<name>                meta records of the store: the numbers "mformat" and "mcompacted", "mclock" (clock.go),
//	                       "mmarks" (samples.go), and "mkept" (retention.go)
//
// Integers in keys have 8 bytes, big endian, so that the order of bytes is the order of numbers. A version key contains
// the complement of the revision, so that the newest version comes first. Keys of clients contain no zero byte, so that
// versions are in the order of their keys and a version key can be split at its first zero byte.
//
// Example: revision 7 puts /a with the value "x", which existed at revision 5. It writes v/a\x00<^7> with the header
// and "x", and l<7> with the operation (put /a, previous revision 5). v/a\x00<^5> stays until revision 7 is compacted, and
// after that as long as the retention of /a says.
const (
	prefixExpiry  = 'e'
	prefixLog     = 'l'
	prefixMeta    = 'm'
	prefixVersion = 'v'
)

const (
	metaFormat    = "mformat"
	metaCompacted = "mcompacted"
	metaClock     = "mclock"
	metaSamples   = "mmarks"
	metaKept      = "mkept"
	metaHeld      = "mheld" // see holder

	// formatVersion is the layout that this code writes. A store with a higher version is refused. A store with a
	// lower version is read, and gets this version. Log records of format 1 do not contain the size of the
	// previous version. Those of formats 1 and 2 do not contain the time and the author of the write.
	formatVersion = 3
)

const (
	flagTombstone = 1 << 0
	flagDeadline  = 1 << 1
	flagPrevSize  = 1 << 1 // in a log record
	flagWritten   = 1 << 7 // in a log record: begins the time and the author, not an operation
)

var errCorrupt = errors.New("embedded: corrupt record")

// version is a decoded version of a key. value shares memory with the encoded form.
type version struct {
	revision  int64
	create    int64
	deadline  int64 // Unix milliseconds; 0 is never
	tombstone bool
	value     []byte
}

// logOp is the change of one key in a log record.
type logOp struct {
	key     string
	deleted bool
	prev    int64 // mod revision of the previous version; 0 if the key did not exist
	// prevSize is the encoded size of the previous version, without its key; 0 if it is unknown.
	prevSize int64
}

// validateKey returns an error if key is empty or contains a zero byte.
func validateKey(key string) error {
	if key == "" {
		return errors.New("embedded: empty key")
	}
	if strings.IndexByte(key, 0) >= 0 {
		return fmt.Errorf("embedded: key %q contains a zero byte", key)
	}
	return nil
}

// versionKeySize returns the length of the version keys of key.
func versionKeySize(key string) int { return 1 + len(key) + 1 + 8 }

// putVersionKey writes the version key of key at revision to dst, which must have versionKeySize(key) bytes.
func putVersionKey(dst []byte, key string, revision int64) {
	dst[0] = prefixVersion
	n := 1 + copy(dst[1:], key)
	dst[n] = 0
	binary.BigEndian.PutUint64(dst[n+1:], ^uint64(revision))
}

// appendVersionKey appends the version key of key at revision. A seek to it finds the newest version of key at or below
// revision.
func appendVersionKey(dst []byte, key string, revision int64) []byte {
	dst = append(dst, prefixVersion)
	dst = append(dst, key...)
	dst = append(dst, 0)
	return binary.BigEndian.AppendUint64(dst, ^uint64(revision))
}

// splitVersionKey returns the key of the client, which shares memory with b, and the revision.
func splitVersionKey(b []byte) (key []byte, revision int64, err error) {
	n := len(b) - 9
	if n < 2 || b[0] != prefixVersion || b[n] != 0 {
		return nil, 0, fmt.Errorf("%w: version key %q", errCorrupt, b)
	}
	r := ^binary.BigEndian.Uint64(b[n+1:])
	if r == 0 || r > math.MaxInt64 {
		return nil, 0, fmt.Errorf("%w: version key %q", errCorrupt, b)
	}
	return b[1:n], int64(r), nil
}

// appendVersionBound appends the lower bound of the version keys of all keys that are not below key. key may
// contain a zero byte, as the start key of a following page does: "/a\x00" is the bound just above /a.
func appendVersionBound(dst []byte, key string) []byte {
	dst = append(dst, prefixVersion)
	if i := strings.IndexByte(key, 0); i >= 0 {
		return append(append(dst, key[:i]...), 1)
	}
	return append(dst, key...)
}

// uvarintSize returns the number of bytes of v as a varint.
func uvarintSize(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// size returns the encoded size of v without its key.
func (v *version) size() int {
	n := 1 + uvarintSize(uint64(v.create)) + len(v.value)
	if v.deadline != 0 {
		n += uvarintSize(uint64(v.deadline))
	}
	return n
}

// encode writes v to dst, which must have v.size() bytes. The revision is not written; it is part of the key.
func (v *version) encode(dst []byte) {
	var flags byte
	if v.tombstone {
		flags |= flagTombstone
	}
	if v.deadline != 0 {
		flags |= flagDeadline
	}
	dst[0] = flags
	n := 1 + binary.PutUvarint(dst[1:], uint64(v.create))
	if v.deadline != 0 {
		n += binary.PutUvarint(dst[n:], uint64(v.deadline))
	}
	copy(dst[n:], v.value)
}

// decodeVersion decodes a version of the given revision. It fails with errCorrupt.
func decodeVersion(b []byte, revision int64) (version, error) {
	v := version{revision: revision}
	if len(b) == 0 || b[0]&^(flagTombstone|flagDeadline) != 0 {
		return v, fmt.Errorf("%w: version header", errCorrupt)
	}
	flags := b[0]
	b = b[1:]
	var err error
	if v.create, b, err = cutUvarint(b); err != nil {
		return v, err
	}
	if flags&flagDeadline != 0 {
		if v.deadline, b, err = cutUvarint(b); err != nil {
			return v, err
		}
	}
	v.tombstone = flags&flagTombstone != 0
	v.value = b
	return v, nil
}

// isTombstone reports whether an encoded version is a deletion.
func isTombstone(b []byte) bool { return len(b) > 0 && b[0]&flagTombstone != 0 }

// cutUvarint decodes a varint and returns it with the remaining bytes.
func cutUvarint(b []byte) (int64, []byte, error) {
	u, n := binary.Uvarint(b)
	if n <= 0 || u > math.MaxInt64 {
		return 0, nil, fmt.Errorf("%w: number", errCorrupt)
	}
	return int64(u), b[n:], nil
}

// logKeySize is the length of the key of a log record.
const logKeySize = 1 + 8

// putLogKey writes the key of the log record of revision to dst, which must have logKeySize bytes.
func putLogKey(dst []byte, revision int64) {
	dst[0] = prefixLog
	binary.BigEndian.PutUint64(dst[1:], uint64(revision))
}

// logKey returns the key of the log record of revision.
func logKey(revision int64) []byte {
	key := make([]byte, logKeySize)
	putLogKey(key, revision)
	return key
}

func parseLogKey(b []byte) (int64, error) {
	if len(b) != logKeySize || b[0] != prefixLog {
		return 0, fmt.Errorf("%w: log key %q", errCorrupt, b)
	}
	r := binary.BigEndian.Uint64(b[1:])
	if r == 0 || r > math.MaxInt64 {
		return 0, fmt.Errorf("%w: log key %q", errCorrupt, b)
	}
	return int64(r), nil
}

// appendLogOp appends op to a log record.
func appendLogOp(dst []byte, op logOp) []byte {
	var flags byte
	if op.deleted {
		flags |= flagTombstone
	}
	if op.prevSize > 0 {
		flags |= flagPrevSize
	}
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, uint64(op.prev))
	if op.prevSize > 0 {
		dst = binary.AppendUvarint(dst, uint64(op.prevSize))
	}
	dst = binary.AppendUvarint(dst, uint64(len(op.key)))
	return append(dst, op.key...)
}

// written contains the time and the author of a revision.
type written struct {
	ms int64  // Unix milliseconds of the wall clock; 0 if that is not known
	by []byte // Txn.By
}

// appendWritten appends the time and the author, with which a log record begins.
func appendWritten(dst []byte, w written) []byte {
	dst = binary.AppendUvarint(append(dst, flagWritten), uint64(max(w.ms, 0)))
	return append(binary.AppendUvarint(dst, uint64(len(w.by))), w.by...)
}

// cutWritten returns the time and the author at the beginning of a log record, and the operations after them. Both
// share memory with b.
func cutWritten(b []byte) (w written, ops []byte, err error) {
	if len(b) == 0 || b[0] != flagWritten {
		return w, b, nil // of an older format
	}
	if w.ms, ops, err = cutUvarint(b[1:]); err != nil {
		return w, nil, err
	}
	n, ops, err := cutUvarint(ops)
	if err != nil || n > int64(len(ops)) {
		return w, nil, fmt.Errorf("%w: log author", errCorrupt)
	}
	w.by = ops[:n]
	return w, ops[n:], nil
}

// decodeLog calls yield for each operation of a log record. op.key is not set. The key is passed separately and
// shares memory with b, so that yield only copies the keys that it needs.
func decodeLog(b []byte, yield func(key []byte, op logOp) error) error {
	_, b, err := cutWritten(b)
	if err != nil {
		return err
	}
	for len(b) > 0 {
		flags := b[0]
		if flags&^(flagTombstone|flagPrevSize) != 0 {
			return fmt.Errorf("%w: log flags", errCorrupt)
		}
		op := logOp{deleted: flags&flagTombstone != 0}
		rest := b[1:]
		var err error
		if op.prev, rest, err = cutUvarint(rest); err != nil {
			return err
		}
		if flags&flagPrevSize != 0 {
			if op.prevSize, rest, err = cutUvarint(rest); err != nil {
				return err
			}
		}
		n, rest, err := cutUvarint(rest)
		if err != nil {
			return err
		}
		if n > int64(len(rest)) {
			return fmt.Errorf("%w: log key length", errCorrupt)
		}
		if err := yield(rest[:n], op); err != nil {
			return err
		}
		b = rest[n:]
	}
	return nil
}

// appendExpiryKey appends the key in the expiry index of a key that expires at deadline, in milliseconds of store time.
func appendExpiryKey(dst []byte, deadline int64, key string) []byte {
	dst = append(dst, prefixExpiry)
	dst = binary.BigEndian.AppendUint64(dst, uint64(deadline))
	return append(dst, key...)
}

func parseExpiryKey(b []byte) (deadline int64, key []byte, err error) {
	if len(b) < 10 || b[0] != prefixExpiry {
		return 0, nil, fmt.Errorf("%w: expiry key %q", errCorrupt, b)
	}
	d := binary.BigEndian.Uint64(b[1:9])
	if d > math.MaxInt64 {
		return 0, nil, fmt.Errorf("%w: expiry key %q", errCorrupt, b)
	}
	return int64(d), b[9:], nil
}

func encodeNumber(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func decodeNumber(b []byte) (int64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("%w: number of %d bytes", errCorrupt, len(b))
	}
	u := binary.BigEndian.Uint64(b)
	if u > math.MaxInt64 {
		return 0, fmt.Errorf("%w: number %d", errCorrupt, u)
	}
	return int64(u), nil
}
