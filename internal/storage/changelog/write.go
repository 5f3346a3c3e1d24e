package changelog

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/keelson-dev/keelson/internal/storage/blockfile"
)

// window is how far back, in bytes, the compression finds what is the same: the versions of some thousand objects.
const window = 8 << 20

// windowFor returns the window for a segment: a power of two.
func windowFor(size int64) int {
	if size <= 0 {
		return window
	}
	n := minWindow
	for n < window && int64(n) < size {
		n *= 2
	}
	return n
}

// minWindow is the smallest window.
const minWindow = 64 << 10

// Writer writes a segment. After an error it cannot be used any more.
type Writer struct {
	zipped *zstd.Encoder // nil after Close and Abort
	window int
	out    *blockfile.Writer
	last   int64 // revision
	lastMS int64
	totals Totals
}

// NewWriter writes the header of a segment. The caller adds transactions with Write and must call Close, or Abort after an error. size is
// how many bytes the keys and values will have, so that a small segment needs little memory, also when it is read; 0 means that it is not
// known.
func NewWriter(w io.Writer, h Header, size int64) (*Writer, error) {
	if h.After < 0 {
		return nil, fmt.Errorf("a segment cannot begin after revision %d", h.After)
	}
	payload, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	zipped, err := zippers.take(windowFor(size), w)
	if err != nil {
		return nil, err
	}
	out, err := blockfile.NewWriter(zipped, line)
	if err != nil {
		return nil, err
	}
	return &Writer{zipped: zipped, window: windowFor(size), out: out, last: h.After}, out.Block(kindHeader, payload)
}

// Write adds a transaction. Transactions must be in ascending order of their revisions.
func (w *Writer) Write(t Transaction) error {
	if err := t.validate(w.last); err != nil {
		return err
	}
	size := 4*binary.MaxVarintLen64 + len(t.By)
	for i := range t.Operations {
		size += 1 + 3*binary.MaxVarintLen64 + len(t.Operations[i].Key) + len(t.Operations[i].Value)
	}
	if size > blockfile.MaxPayload {
		return fmt.Errorf("revision %d is too large for a segment: %d bytes", t.Revision, size)
	}
	ms := milliseconds(t.Time)
	err := w.out.Add(kindChanges, size, func(b []byte) []byte { return appendTransaction(b, &t, t.Revision-w.last, ms-w.lastMS) })
	w.last, w.lastMS = t.Revision, ms
	w.totals.add(&t)
	return err
}

// appendTransaction appends a transaction whose revision and time are given by their differences from those before.
func appendTransaction(b []byte, t *Transaction, revision, ms int64) []byte {
	b = binary.AppendUvarint(b, uint64(revision))
	b = binary.AppendVarint(b, ms)
	b = blockfile.AppendBytes(b, t.By)
	b = binary.AppendUvarint(b, uint64(len(t.Operations)))
	for i := range t.Operations {
		op := &t.Operations[i]
		var flags byte
		if op.Deleted {
			flags |= flagDeleted
		}
		if op.Deadline != 0 {
			flags |= flagDeadline
		}
		b = blockfile.AppendBytes(append(b, flags), op.Key)
		if op.Deadline != 0 {
			b = binary.AppendUvarint(b, uint64(op.Deadline))
		}
		if !op.Deleted {
			b = blockfile.AppendBytes(b, op.Value)
		}
	}
	return b
}

// Close completes the segment, which has all changes up to the revision through, and returns its totals. It does not close the
// underlying writer.
func (w *Writer) Close(through int64) (Totals, error) {
	if through < w.last {
		return w.totals, fmt.Errorf("a segment with revision %d cannot end at %d", w.last, through)
	}
	w.totals.Through = through
	payload, err := json.Marshal(w.totals)
	if err == nil {
		err = w.out.Block(kindTotals, payload)
	}
	if err == nil {
		err = w.out.Close()
	}
	err = errors.Join(err, w.zipped.Close())
	w.Abort()
	return w.totals, err
}

// Abort frees the memory of a Writer that is not closed. What was written is no segment.
func (w *Writer) Abort() {
	if w.zipped != nil {
		zippers.put(w.window, w.zipped)
	}
	w.zipped = nil
}

// encoders has encoders that are not in use, by the logarithm of their windows. To make one takes more time than to compress the
// changes of a second.
type encoders [bits.UintSize]sync.Pool

var zippers encoders

// take returns an encoder that writes to w.
func (e *encoders) take(window int, w io.Writer) (*zstd.Encoder, error) {
	if zipped, ok := e[bits.Len(uint(window))].Get().(*zstd.Encoder); ok {
		zipped.Reset(w)
		return zipped, nil
	}
	return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithEncoderCRC(false),
		zstd.WithEncoderLevel(zstd.SpeedFastest))
}

func (e *encoders) put(window int, zipped *zstd.Encoder) {
	zipped.Reset(nil)
	e[bits.Len(uint(window))].Put(zipped)
}
