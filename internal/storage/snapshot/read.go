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

// Reader reads a snapshot and verifies it. The snapshot is verified completely only when Next has returned io.EOF.
type Reader struct {
	in     io.Reader
	hash   hash.Hash
	header Header
	totals Totals // of the entries read so far
	last   string
	block  []byte // the unread part of a block of entries
	offset int64
	sum    []byte
	err    error
}

// NewReader reads the header of a snapshot.
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
		return nil, damagedError("its header cannot be read")
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

// Totals returns the totals of the entries read so far.
func (r *Reader) Totals() Totals { return r.totals }

// SHA256 returns the checksum in the file, after Next has returned io.EOF.
func (r *Reader) SHA256() []byte { return r.sum }

// Next returns the next entry, which belongs to the caller. It returns io.EOF after the last one, if all checksums are
// right and no data follows.
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
			return Entry{}, damagedError("a block of unknown kind %q before byte %d", kind, r.offset)
		}
	}
	e, rest, ok := cutEntry(r.block)
	if !ok {
		return Entry{}, damagedError("an entry before byte %d cannot be read", r.offset)
	}
	if err := e.validate(r.last, r.header.Revision); err != nil {
		return Entry{}, damagedError("%v", err)
	}
	r.block, r.last = rest, e.Key
	r.totals.add(&e)
	return e, nil
}

// finish verifies the totals, the SHA-256 and the end of the file. It returns io.EOF if all are right.
func (r *Reader) finish(payload []byte) error {
	var totals Totals
	if json.Unmarshal(payload, &totals) != nil {
		return damagedError("its totals cannot be read")
	}
	if totals != r.totals {
		return damagedError(
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
		return damagedError("its SHA-256 is wrong")
	}
	n, err := io.ReadFull(r.in, make([]byte, 1))
	if n != 0 {
		return damagedError("something follows its end")
	}
	return err // io.EOF, or the error of the underlying reader
}

// read fills b.
func (r *Reader) read(b []byte) error {
	n, err := io.ReadFull(r.in, b)
	r.hash.Write(b[:n])
	r.offset += int64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damagedError("it ends at byte %d, in its middle", r.offset)
	}
	return err
}

// readBlock returns the payload of a block in new memory. It allocates memory only for data that it has read, because
// the length in a damaged file may be wrong.
func (r *Reader) readBlock() (kind byte, payload []byte, err error) {
	at := r.offset
	var head [blockHead]byte
	if err := r.read(head[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.BigEndian.Uint32(head[1:]))
	if n > maxPayload {
		return 0, nil, damagedError("a block of %d bytes at byte %d", n, at)
	}
	crc := crc32.Checksum(head[:], castagnoli)
	for len(payload) < n {
		// The pieces double in size, beginning with the size of an ordinary block.
		piece := min(n-len(payload), max(len(payload), 2*blockTargetBytes))
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
		return 0, nil, damagedError("the checksum of the block at byte %d is wrong", at)
	}
	return head[0], payload, nil
}

// cutEntry decodes the first entry of a block and returns the remaining bytes. The value shares memory with the block.
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

// cutBytes decodes a length and that many bytes, which share memory with b.
func cutBytes(b []byte) (field, rest []byte, ok bool) {
	u, n := binary.Uvarint(b)
	if n <= 0 || u > uint64(len(b)-n) {
		return nil, nil, false
	}
	end := n + int(u)
	return b[n:end:end], b[end:], true
}
