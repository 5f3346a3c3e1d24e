package snapshot

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"

	"github.com/keelson-dev/keelson/internal/storage/blockfile"
)

// Reader reads a snapshot and verifies it: the entries with Next, then the records of the past with NextPast. The snapshot is
// verified completely only when NextPast has returned io.EOF.
type Reader struct {
	in     *blockfile.Reader
	header Header
	totals Totals // of the entries read so far
	last   string
	kind   byte   // of the current block
	block  []byte // the unread part of it
	sum    []byte
	err    error
}

// NewReader reads the header of a snapshot.
func NewReader(r io.Reader) (*Reader, error) {
	s := &Reader{in: blockfile.NewReader(r, ErrDamaged)}
	line, err := s.in.Line(magicLength)
	if err != nil {
		return nil, notSnapshot(err)
	}
	switch version, ok := strings.CutPrefix(line, magic); {
	case !ok:
		return nil, ErrNotSnapshot
	case version != "1\n" && version != "2\n":
		return nil, ErrNewer
	}
	kind, payload, err := s.in.Next()
	if err != nil {
		return nil, err
	}
	if kind != kindHeader || json.Unmarshal(payload, &s.header) != nil || s.header.Revision < 1 {
		return nil, s.in.Damaged("its header cannot be read")
	}
	return s, nil
}

// notSnapshot converts the error of a file that is shorter than the first line.
func notSnapshot(err error) error {
	if errors.Is(err, ErrDamaged) {
		return ErrNotSnapshot
	}
	return err
}

// Header returns the header of the snapshot.
func (r *Reader) Header() Header { return r.header }

// Totals returns the totals of the entries and records that were read so far.
func (r *Reader) Totals() Totals { return r.totals }

// SHA256 returns the checksum in the file. It may be called after NextPast has returned io.EOF.
func (r *Reader) SHA256() []byte { return r.sum }

// Next returns the next entry, which belongs to the caller. It returns io.EOF after the last one.
func (r *Reader) Next() (Entry, error) {
	if err := r.fill(kindEntries); err != nil {
		return Entry{}, err
	}
	e, rest, ok := cutEntry(r.block)
	if !ok {
		return Entry{}, r.fail(r.in.Damaged("an entry before byte %d cannot be read", r.in.Offset()))
	}
	if err := e.validate(r.last, r.header.Revision); err != nil {
		return Entry{}, r.fail(r.in.Damaged("%v", err))
	}
	r.block, r.last = rest, e.Key
	r.totals.add(&e)
	return e, nil
}

// NextPast returns the next record of the past, which belongs to the caller. It must be called after Next has
// returned io.EOF. After the last record it returns io.EOF, if all checksums are right and no data follows.
func (r *Reader) NextPast() (p Past, err error) {
	if err := r.fill(kindPast); err != nil {
		return p, err
	}
	key, rest, ok := blockfile.CutBytes(r.block)
	if ok {
		p.Key = key
		p.Value, rest, ok = blockfile.CutBytes(rest)
	}
	if !ok {
		return Past{}, r.fail(r.in.Damaged("a record before byte %d cannot be read", r.in.Offset()))
	}
	r.block = rest
	r.totals.addPast(p)
	return p, nil
}

// fill reads blocks until the current block has unread data of this kind. It returns io.EOF if a block of another
// kind follows.
func (r *Reader) fill(kind byte) error {
	for len(r.block) == 0 && r.err == nil {
		next, payload, err := r.in.Next()
		switch {
		case err != nil:
			r.err = err
		case next == kindEntries && r.kind != kindPast || next == kindPast && r.header.PastFormat > 0:
			r.kind, r.block = next, payload
		case next == kindTotals:
			r.err = r.finish(payload)
		default:
			r.err = r.in.Damaged("a block of unknown kind %q before byte %d", next, r.in.Offset())
		}
	}
	if len(r.block) == 0 {
		return r.err
	}
	if kind != r.kind {
		return io.EOF
	}
	return nil
}

// fail stores an error, which all later calls return.
func (r *Reader) fail(err error) error {
	r.block, r.err = nil, err
	return err
}

// finish verifies the totals, the SHA-256 and the end of the file. It returns io.EOF if all are right.
func (r *Reader) finish(payload []byte) (err error) {
	var totals Totals
	if json.Unmarshal(payload, &totals) != nil {
		return r.in.Damaged("its totals cannot be read")
	}
	if totals != r.totals {
		return r.in.Damaged(
			"it has %d entries of %d bytes and %d records of %d, and says that it has %d of %d and %d of %d", r.totals.Entries,
			r.totals.Bytes, r.totals.Past, r.totals.PastBytes, totals.Entries, totals.Bytes, totals.Past, totals.PastBytes,
		)
	}
	if r.sum, err = r.in.End(); err != nil {
		return err
	}
	return io.EOF
}

// cutEntry decodes the first entry of a block and returns the remaining bytes. The value shares memory with the block.
func cutEntry(b []byte) (e Entry, rest []byte, ok bool) {
	key, b, ok := blockfile.CutBytes(b)
	if !ok {
		return e, nil, false
	}
	e.Key = string(key)
	for _, field := range []*int64{&e.CreateRevision, &e.ModRevision, &e.Deadline} {
		u, n := binary.Uvarint(b)
		if n <= 0 || u > math.MaxInt64 {
			return e, nil, false
		}
		*field, b = int64(u), b[n:]
	}
	e.Value, rest, ok = blockfile.CutBytes(b)
	return e, rest, ok
}
