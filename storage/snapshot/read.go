package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash"
	"hash/crc32"
	"io"
	"math"
	"strings"
)

// Reader reads a snapshot and verifies it on the way. Only when Next has returned
// io.EOF is the whole of it known to be right.
type Reader struct {
	in     io.Reader
	hash   hash.Hash
	header Header
	totals Totals // so far; the file's own at the end
	last   string
	block  []byte // what is left of a block of entries
	offset int64
	sum    []byte
	err    error
}

// NewReader reads the header.
func NewReader(r io.Reader) (*Reader, error) {
	s := &Reader{in: r, hash: sha256.New()}
	head := make([]byte, magicLength)
	if err := s.read(head); err != nil {
		return nil, notSnapshot(err)
	}
	switch version, ok := strings.CutPrefix(string(head), magic); {
	case !ok:
		return nil, ErrNotSnapshot
	case version != "1\n":
		return nil, ErrNewer
	}
	kind, payload, err := s.readBlock()
	if err != nil {
		return nil, err
	}
	if kind != kindHeader || json.Unmarshal(payload, &s.header) != nil || s.header.Revision < 1 {
		return nil, damaged("its header cannot be read")
	}
	return s, nil
}

// notSnapshot is the error of a file that is too short to say what it is.
func notSnapshot(err error) error {
	if errors.Is(err, ErrDamaged) {
		return ErrNotSnapshot
	}
	return err
}

// Header says what the snapshot is of.
func (r *Reader) Header() Header { return r.header }

// Totals are those of the entries read so far.
func (r *Reader) Totals() Totals { return r.totals }

// SHA256 is the file's own checksum, after Next has returned io.EOF.
func (r *Reader) SHA256() []byte { return r.sum }

// Next returns the next entry, which is the caller's; io.EOF after the last, when
// all checksums are right and nothing follows.
func (r *Reader) Next() (Entry, error) {
	if r.err != nil {
		return Entry{}, r.err
	}
	e, err := r.next()
	if err != nil {
		r.err = err
		return Entry{}, err
	}
	return e, nil
}

func (r *Reader) next() (Entry, error) {
	for len(r.block) == 0 {
		kind, payload, err := r.readBlock()
		switch {
		case err != nil:
			return Entry{}, err
		case kind == kindEntries:
			r.block = payload
		case kind == kindTotals:
			return Entry{}, r.finish(payload)
		default:
			return Entry{}, damaged("a block of unknown kind %q before byte %d", kind, r.offset)
		}
	}
	e, rest, ok := cutEntry(r.block)
	if !ok {
		return Entry{}, damaged("an entry before byte %d cannot be read", r.offset)
	}
	if err := e.validate(r.last, r.header.Revision); err != nil {
		return Entry{}, damaged("%v", err)
	}
	r.block, r.last = rest, e.Key
	r.totals.add(&e)
	return e, nil
}

// finish verifies what is known at the end. It returns io.EOF if all is right.
func (r *Reader) finish(payload []byte) error {
	var totals Totals
	if json.Unmarshal(payload, &totals) != nil {
		return damaged("its totals cannot be read")
	}
	if totals != r.totals {
		return damaged(
			"it has %d entries of %d bytes, and says that it has %d of %d", r.totals.Entries, r.totals.Bytes, totals.Entries,
			totals.Bytes,
		)
	}
	want := r.hash.Sum(nil)
	r.sum = make([]byte, hashLength)
	if err := r.read(r.sum); err != nil {
		return err
	}
	if !bytes.Equal(r.sum, want) {
		return damaged("its SHA-256 is wrong")
	}
	n, err := io.ReadFull(r.in, make([]byte, 1))
	if n != 0 {
		return damaged("something follows its end")
	}
	return err // io.EOF, or what reading failed with
}

// read fills b.
func (r *Reader) read(b []byte) error {
	n, err := io.ReadFull(r.in, b)
	r.hash.Write(b[:n])
	r.offset += int64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged("it ends at byte %d, in its middle", r.offset)
	}
	return err
}

// readBlock returns a block's payload, which is new memory. It takes no more
// memory than there is to read, whatever the length says.
func (r *Reader) readBlock() (kind byte, payload []byte, err error) {
	at := r.offset
	var head [blockHead]byte
	if err := r.read(head[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.BigEndian.Uint32(head[1:]))
	if n > maxPayload {
		return 0, nil, damaged("a block of %d bytes at byte %d", n, at)
	}
	crc := crc32.Checksum(head[:], castagnoli)
	for len(payload) < n {
		// Twice as much each time, beginning with what a block usually has.
		piece := min(n-len(payload), max(len(payload), 2*blockTarget))
		payload = append(payload, make([]byte, piece)...)
		b := payload[len(payload)-piece:]
		if err := r.read(b); err != nil {
			return 0, nil, err
		}
		crc = crc32.Update(crc, castagnoli, b)
	}
	var sum [4]byte
	if err := r.read(sum[:]); err != nil {
		return 0, nil, err
	}
	if binary.BigEndian.Uint32(sum[:]) != crc {
		return 0, nil, damaged("the checksum of the block at byte %d is wrong", at)
	}
	return head[0], payload, nil
}

// cutEntry splits the first entry off a block. Its value aliases the block.
func cutEntry(b []byte) (e Entry, rest []byte, ok bool) {
	key, b, ok := cutBytes(b)
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
	e.Value, rest, ok = cutBytes(b)
	return e, rest, ok
}

func cutBytes(b []byte) (field, rest []byte, ok bool) {
	u, n := binary.Uvarint(b)
	if n <= 0 || u > uint64(len(b)-n) {
		return nil, nil, false
	}
	end := n + int(u)
	return b[n:end:end], b[end:], true
}
