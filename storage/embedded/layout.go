package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
)

// The key space of the Pebble database, by first byte:
//
//	v<key>\x00<^revision>  one version of a key: header, then the value
//	l<revision>            the keys that this revision changed, in operation order
//	e<deadline><key>       a key that expires, by the store time; value: its mod revision
//	m<name>                the store's own records: the numbers "mformat" and
//	                       "mcompacted", "mclock" (clock.go) and "mmarks" (history.go)
//
// Integers in keys are 8 bytes, big endian, so that byte order is numeric order;
// versions carry the complement, so that the newest comes first. Keys contain no
// zero byte, so that the order of versions is the order of keys and a version key
// splits at its first zero byte.
const (
	spaceExpiry  = 'e'
	spaceLog     = 'l'
	spaceMeta    = 'm'
	spaceVersion = 'v'
)

const (
	metaFormat    = "mformat"
	metaCompacted = "mcompacted"
	metaClock     = "mclock"
	metaMarks     = "mmarks"

	// formatVersion is the layout this code writes. A store with a higher one is
	// refused; one with a lower one is read, and written with this one from then on.
	// In format 1 log records did not have the size of the version before.
	formatVersion = 2
)

const (
	flagTombstone = 1 << 0
	flagDeadline  = 1 << 1
	flagPrevSize  = 1 << 1 // in a log record
)

var errCorrupt = errors.New("embedded: corrupt record")

// version is one version of a key, decoded. value aliases the encoded form.
type version struct {
	revision  int64
	create    int64
	deadline  int64 // Unix milliseconds; 0 is never
	tombstone bool
	value     []byte
}

// logOp is one key's change within a revision.
type logOp struct {
	key     string
	deleted bool
	prev    int64 // mod revision of the version before; 0 if there was none
	// prevSize is the size of the encoded version before, without its key; 0 if it is
	// not known.
	prevSize int64
}

func validateKey(key string) error {
	if key == "" {
		return errors.New("embedded: empty key")
	}
	if strings.IndexByte(key, 0) >= 0 {
		return fmt.Errorf("embedded: key %q contains a zero byte", key)
	}
	return nil
}

func versionKeySize(key string) int { return 1 + len(key) + 1 + 8 }

func putVersionKey(dst []byte, key string, revision int64) {
	dst[0] = spaceVersion
	n := 1 + copy(dst[1:], key)
	dst[n] = 0
	binary.BigEndian.PutUint64(dst[n+1:], ^uint64(revision))
}

// appendVersionKey appends the key under which the version of key at revision
// lies; seeking to it finds the newest version at or below revision.
func appendVersionKey(dst []byte, key string, revision int64) []byte {
	dst = append(dst, spaceVersion)
	dst = append(dst, key...)
	dst = append(dst, 0)
	return binary.BigEndian.AppendUint64(dst, ^uint64(revision))
}

// splitVersionKey returns the user's key (aliasing b) and the revision.
func splitVersionKey(b []byte) (key []byte, revision int64, err error) {
	n := len(b) - 9
	if n < 2 || b[0] != spaceVersion || b[n] != 0 {
		return nil, 0, fmt.Errorf("%w: version key %q", errCorrupt, b)
	}
	r := ^binary.BigEndian.Uint64(b[n+1:])
	if r == 0 || r > math.MaxInt64 {
		return nil, 0, fmt.Errorf("%w: version key %q", errCorrupt, b)
	}
	return b[1:n], int64(r), nil
}

// appendVersionBound appends the bound that divides the versions of keys below
// key from those of key and above. A zero byte, which no key has, stands for "just
// above what comes before it" (as in the start key of a following page).
func appendVersionBound(dst []byte, key string) []byte {
	dst = append(dst, spaceVersion)
	if i := strings.IndexByte(key, 0); i >= 0 {
		return append(append(dst, key[:i]...), 1)
	}
	return append(dst, key...)
}

func uvarintSize(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

func (v *version) size() int {
	n := 1 + uvarintSize(uint64(v.create)) + len(v.value)
	if v.deadline != 0 {
		n += uvarintSize(uint64(v.deadline))
	}
	return n
}

// encode writes v (but not its revision, which is in the key) to dst, which has
// exactly v.size() bytes.
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

// isTombstone tells from an encoded version whether it marks a deletion.
func isTombstone(b []byte) bool { return len(b) > 0 && b[0]&flagTombstone != 0 }

func cutUvarint(b []byte) (int64, []byte, error) {
	u, n := binary.Uvarint(b)
	if n <= 0 || u > math.MaxInt64 {
		return 0, nil, fmt.Errorf("%w: number", errCorrupt)
	}
	return int64(u), b[n:], nil
}

func logKey(revision int64) []byte {
	return binary.BigEndian.AppendUint64([]byte{spaceLog}, uint64(revision))
}

func parseLogKey(b []byte) (int64, error) {
	if len(b) != 9 || b[0] != spaceLog {
		return 0, fmt.Errorf("%w: log key %q", errCorrupt, b)
	}
	r := binary.BigEndian.Uint64(b[1:])
	if r == 0 || r > math.MaxInt64 {
		return 0, fmt.Errorf("%w: log key %q", errCorrupt, b)
	}
	return int64(r), nil
}

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

// decodeLog calls yield for each operation of a log record, with its key apart: the key
// aliases b.
func decodeLog(b []byte, yield func(key []byte, op logOp) error) error {
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

func appendExpiryKey(dst []byte, deadline int64, key string) []byte {
	dst = append(dst, spaceExpiry)
	dst = binary.BigEndian.AppendUint64(dst, uint64(deadline))
	return append(dst, key...)
}

func parseExpiryKey(b []byte) (deadline int64, key []byte, err error) {
	if len(b) < 10 || b[0] != spaceExpiry {
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
