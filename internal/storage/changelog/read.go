package changelog

import (
	"bufio"
	"bytes"
	"context"
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
	in     *blockfile.Reader
	header Header
	totals Totals // of the frames read so far
	frame  Totals // of the transactions of the present frame that were read
	want   Totals // of all its transactions
	block  []byte // the unread part of the present frame
	whole  []byte // the memory of block
	lastMS int64
	err    error
}

// NewReader reads the header of a segment.
func NewReader(r io.Reader) (*Reader, error) {
	s := &Reader{in: blockfile.NewReader(bufio.NewReaderSize(r, readAhead), ErrDamaged)}
	if err := s.readHeader(); err != nil {
		return nil, err
	}
	s.totals.Through = s.header.After
	s.frame.Through = s.header.After
	return s, nil
}

func (r *Reader) readHeader() error {
	first, err := r.in.Line(len(line))
	if err != nil {
		return err
	}
	if first != line {
		if strings.HasPrefix(first, line[:len(line)-2]) || strings.HasPrefix(first, zipped) {
			return ErrOtherFormat
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

// readAhead is the size of the reads: a block is read in several parts.
const readAhead = 64 << 10

// zipped is how a segment of the first format begins, which was compressed as a whole.
const zipped = "\x28\xb5\x2f\xfd"

// Header returns the header of the segment.
func (r *Reader) Header() Header { return r.header }

// Totals returns the totals of the segment after Next has returned io.EOF.
func (r *Reader) Totals() Totals { return r.totals }

// Next returns the next transaction, which belongs to the caller. It returns io.EOF after the last one, if all checksums are right
// and no data follows.
func (r *Reader) Next() (Transaction, error) {
	if len(r.block) == 0 {
		f, packed, err := r.nextFrame()
		if err == nil {
			err = r.unpack(f, packed)
		}
		if err != nil {
			return Transaction{}, err
		}
	}
	return r.cut()
}

// Each calls do for all transactions until it returns an error. It verifies the segment.
func (r *Reader) Each(ctx context.Context, do func(*Transaction) error) error {
	for {
		t, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = do(&t)
		}
		if err != nil {
			return err
		}
	}
}

// nextFrame returns the next frame, or io.EOF as Next does.
func (r *Reader) nextFrame() (f frame, packed []byte, err error) {
	if r.err != nil {
		return f, nil, r.err
	}
	kind, payload, err := r.in.Next()
	switch {
	case err != nil:
		return f, nil, r.fail(err)
	case kind == kindTotals:
		return f, nil, r.fail(r.finish(payload))
	case kind != kindFrame:
		return f, nil, r.fail(r.in.Damaged("a block of unknown kind %q before byte %d", kind, r.in.Offset()))
	}
	if json.Unmarshal(payload, &f) != nil || f.After < r.totals.Through || f.Through <= f.After ||
		f.Size <= 0 || f.Size > blockfile.MaxPayload {
		return f, nil, r.fail(r.in.Damaged("the head of a frame before byte %d cannot be read", r.in.Offset()))
	}
	kind, packed, err = r.in.Next()
	if err == nil && kind != kindChanges {
		err = r.in.Damaged("a frame before byte %d has no content", r.in.Offset())
	}
	if err != nil {
		return f, nil, r.fail(err)
	}
	r.totals.append(f.Totals)
	return f, packed, nil
}

// unpack makes a frame the present one.
func (r *Reader) unpack(f frame, packed []byte) error {
	unzipped, err := takeDecoder()
	if err != nil {
		return r.fail(err)
	}
	if cap(r.whole) < f.Size {
		r.whole = make([]byte, 0, min(f.Size, frameBytes))
	}
	r.whole, err = unzipped.DecodeAll(packed, r.whole[:0])
	decoders.Put(unzipped)
	if err != nil || len(r.whole) != f.Size {
		return r.fail(errors.Join(r.in.Damaged("the frame of revisions %d to %d cannot be decompressed", f.After+1, f.Through), err))
	}
	r.block, r.lastMS, r.frame, r.want = r.whole, 0, Totals{Through: f.After}, f.Totals
	return nil
}

// cut returns the next transaction of the present frame.
func (r *Reader) cut() (Transaction, error) {
	t, rest, ok := r.cutTransaction(r.block)
	if !ok {
		return Transaction{}, r.fail(r.in.Damaged("a transaction before byte %d cannot be read", r.in.Offset()))
	}
	if err := t.validate(r.frame.Through); err != nil {
		return Transaction{}, r.fail(r.in.Damaged("%v", err))
	}
	r.block, r.lastMS = rest, milliseconds(t.Time)
	if r.frame.add(&t); len(rest) == 0 && r.frame != r.want {
		return Transaction{}, r.fail(r.in.Damaged("a frame has %+v, and says that it has %+v", r.frame, r.want))
	}
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
	if json.Unmarshal(payload, &totals) != nil || totals.Through < r.totals.Through {
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

// decoders has decoders that are not in use: to make one takes more time than to read a small segment.
var decoders sync.Pool

func takeDecoder() (*zstd.Decoder, error) {
	if d, ok := decoders.Get().(*zstd.Decoder); ok {
		return d, nil
	}
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(blockfile.MaxPayload))
}

// cutTransaction decodes the first transaction of a frame and returns the remaining bytes.
func (r *Reader) cutTransaction(b []byte) (t Transaction, rest []byte, ok bool) {
	revision, n := binary.Uvarint(b)
	if n <= 0 || revision > uint64(math.MaxInt64-r.frame.Through) {
		return t, nil, false
	}
	ms, m := binary.Varint(b[n:])
	if m <= 0 {
		return t, nil, false
	}
	t.Revision, t.Time = r.frame.Through+int64(revision), timeOf(r.lastMS+ms)
	by, b, ok := blockfile.CutBytes(b[n+m:])
	if !ok {
		return t, nil, false
	}
	t.By = bytes.Clone(by)
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
		value, after, ok := blockfile.CutBytes(b)
		if !ok {
			return op, nil, false
		}
		op.Value, b = bytes.Clone(value), after // a frame is large, and a value may be kept for long
	}
	return op, b, true
}
