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

// Reader reads a snapshot and verifies it. Next returns the entries, and then NextPast returns the records of the
// past. The snapshot is verified completely only when NextPast has returned io.EOF.
type Reader struct {
	in     io.Reader
	hash   hash.Hash
	header Header
	totals Totals // of the entries read so far
	last   string
	kind   byte   // of the current block
	block  []byte // unread part of the current block
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
	case version != "1\n" && version != "2\n":
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
		return Entry{}, r.fail(damagedError("an entry before byte %d cannot be read", r.offset))
	}
	if err := e.validate(r.last, r.header.Revision); err != nil {
		return Entry{}, r.fail(damagedError("%v", err))
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
	key, rest, ok := cutBytes(r.block)
	if ok {
		p.Key = key
		p.Value, rest, ok = cutBytes(rest)
	}
	if !ok {
		return Past{}, r.fail(damagedError("a record before byte %d cannot be read", r.offset))
	}
	r.block = rest
	r.totals.addPast(p)
	return p, nil
}

// fill reads blocks until the current block has unread data of this kind. It returns io.EOF if a block of another
// kind follows.
func (r *Reader) fill(kind byte) error {
	for len(r.block) == 0 && r.err == nil {
		next, payload, err := r.readBlock()
		switch {
		case err != nil:
			r.err = err
		case next == kindEntries && r.kind != kindPast || next == kindPast && r.header.PastFormat > 0:
			r.kind, r.block = next, payload
		case next == kindTotals:
			r.err = r.finish(payload)
		default:
			r.err = damagedError("a block of unknown kind %q before byte %d", next, r.offset)
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
func (r *Reader) finish(payload []byte) error {
	var totals Totals
	if json.Unmarshal(payload, &totals) != nil {
		return damagedError("its totals cannot be read")
	}
	if totals != r.totals {
		return damagedError(
			"it has %d entries of %d bytes and %d records of %d, and says that it has %d of %d and %d of %d", r.totals.Entries,
			r.totals.Bytes, r.totals.Past, r.totals.PastBytes, totals.Entries, totals.Bytes, totals.Past, totals.PastBytes,
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

// read fills b, and adds the bytes to the checksum.
func (r *Reader) read(b []byte) error {
	n, err := io.ReadFull(r.in, b)
	r.hash.Write(b[:n])
	r.offset += int64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damagedError("it ends at byte %d, in its middle", r.offset)
	}
	return err
}

// readBlock returns the payload of a block in new memory. It allocates memory piece by piece while it reads,
// because the length in a damaged file may be wrong.
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
