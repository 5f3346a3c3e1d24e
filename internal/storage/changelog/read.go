package changelog

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/keelson-dev/keelson/internal/storage/blockfile"
)

// Reader reads a segment and verifies it. The segment is verified completely only when Next has returned io.EOF.
type Reader struct {
	unzipped *zstd.Decoder
	in       *blockfile.Reader
	header   Header
	totals   Totals // of the transactions read so far
	block    []byte // the unread part of the current block
	last     int64  // revision
	lastMS   int64
	err      error
}

// NewReader reads the header of a segment. The caller must call Close.
func NewReader(r io.Reader) (*Reader, error) {
	source := &source{Reader: r}
	unzipped, err := takeDecoder(source)
	if err != nil {
		return nil, err
	}
	s := &Reader{unzipped: unzipped, in: blockfile.NewReader(&decoded{unzipped, source}, ErrDamaged)}
	if err := s.readHeader(); err != nil {
		s.Close()
		return nil, err
	}
	s.last = s.header.After
	return s, nil
}

// Close frees the memory of the Reader. It does not close the underlying reader.
func (r *Reader) Close() {
	if r.unzipped != nil && r.unzipped.Reset(nil) == nil {
		unzippers.Put(r.unzipped)
	}
	r.unzipped = nil
}

// unzippers has decoders that are not in use: to make one takes more time than to read a small segment.
var unzippers sync.Pool

func takeDecoder(r io.Reader) (*zstd.Decoder, error) {
	if d, ok := unzippers.Get().(*zstd.Decoder); ok {
		return d, d.Reset(r)
	}
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window))
}

func (r *Reader) readHeader() error {
	first, err := r.in.Line(len(line))
	if err != nil {
		return err
	}
	if first != line {
		if strings.HasPrefix(first, line[:len(line)-2]) {
			return ErrNewer
		}
		return r.in.Damaged("it does not begin as a segment of changes")
	}
	kind, payload, err := r.in.Next()
	if err != nil {
		return err
	}
	if kind != kindHeader || json.Unmarshal(payload, &r.header) != nil || r.header.After < 0 {
		return r.in.Damaged("its header cannot be read")
	}
	return nil
}

// Header returns the header of the segment.
func (r *Reader) Header() Header { return r.header }

// Totals returns the totals of the segment after Next has returned io.EOF, and those of what was read so far before.
func (r *Reader) Totals() Totals { return r.totals }

// Next returns the next transaction, which belongs to the caller. It returns io.EOF after the last one, if all checksums are right
// and no data follows.
func (r *Reader) Next() (Transaction, error) {
	for len(r.block) == 0 && r.err == nil {
		kind, payload, err := r.in.Next()
		switch {
		case err != nil:
			r.err = err
		case kind == kindChanges:
			r.block = payload
		case kind == kindTotals:
			r.err = r.finish(payload)
		default:
			r.err = r.in.Damaged("a block of unknown kind %q before byte %d", kind, r.in.Offset())
		}
	}
	if r.err != nil {
		return Transaction{}, r.err
	}
	t, rest, ok := r.cutTransaction(r.block)
	if !ok {
		return Transaction{}, r.fail(r.in.Damaged("a transaction before byte %d cannot be read", r.in.Offset()))
	}
	if err := t.validate(r.last); err != nil {
		return Transaction{}, r.fail(r.in.Damaged("%v", err))
	}
	r.block, r.last, r.lastMS = rest, t.Revision, milliseconds(t.Time)
	r.totals.add(&t)
	return t, nil
}

// fail makes an error the result of all later calls.
func (r *Reader) fail(err error) error {
	r.block, r.err = nil, err
	return err
}

// finish verifies the totals, the SHA-256 and the end of the segment. It returns io.EOF if all are right.
func (r *Reader) finish(payload []byte) error {
	var totals Totals
	if json.Unmarshal(payload, &totals) != nil || totals.Through < r.last {
		return r.in.Damaged("its totals cannot be read")
	}
	r.totals.Through = totals.Through
	if totals != r.totals {
		return r.in.Damaged("it has %+v, and says that it has %+v", r.totals, totals)
	}
	if _, err := r.in.End(); err != nil {
		return err
	}
	return io.EOF
}

// cutTransaction decodes the first transaction of a block and returns the remaining bytes. Authors and values share memory with
// the block.
func (r *Reader) cutTransaction(b []byte) (t Transaction, rest []byte, ok bool) {
	revision, n := binary.Uvarint(b)
	if n <= 0 || revision > uint64(math.MaxInt64-r.last) {
		return t, nil, false
	}
	ms, m := binary.Varint(b[n:])
	if m <= 0 {
		return t, nil, false
	}
	t.Revision, t.Time = r.last+int64(revision), timeOf(r.lastMS+ms)
	if t.By, b, ok = blockfile.CutBytes(b[n+m:]); !ok {
		return t, nil, false
	}
	count, n := binary.Uvarint(b)
	if n <= 0 || count > uint64(len(b)) { // an operation takes more than one byte
		return t, nil, false
	}
	b = b[n:]
	for range count {
		var op Operation
		if op, b, ok = cutOperation(b); !ok {
			return t, nil, false
		}
		t.Operations = append(t.Operations, op)
	}
	return t, b, true
}

func cutOperation(b []byte) (op Operation, rest []byte, ok bool) {
	if len(b) == 0 || b[0]&^(flagDeleted|flagDeadline) != 0 {
		return op, nil, false
	}
	flags := b[0]
	key, b, ok := blockfile.CutBytes(b[1:])
	if !ok {
		return op, nil, false
	}
	op.Key, op.Deleted = string(key), flags&flagDeleted != 0
	if flags&flagDeadline != 0 {
		deadline, n := binary.Uvarint(b)
		if n <= 0 || deadline == 0 || deadline > math.MaxInt64 {
			return op, nil, false
		}
		op.Deadline, b = int64(deadline), b[n:]
	}
	if !op.Deleted {
		if op.Value, b, ok = blockfile.CutBytes(b); !ok {
			return op, nil, false
		}
	}
	return op, b, true
}

// source is the compressed segment. It remembers an error of the underlying reader, to tell it from damage.
type source struct {
	io.Reader
	err error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// decoded is the decompressed segment. What cannot be decompressed is damaged.
type decoded struct {
	*zstd.Decoder
	source *source
}

func (d *decoded) Read(b []byte) (int, error) {
	n, err := d.Decoder.Read(b)
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return n, err
	case d.source.err != nil:
		return n, d.source.err
	}
	return n, errors.Join(ErrDamaged, err)
}
