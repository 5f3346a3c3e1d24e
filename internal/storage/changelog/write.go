package changelog

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"

	"github.com/keelson-dev/keelson/internal/storage/blockfile"
)

const (
	// frameBytes is the size, before compression, at which a frame ends: the versions of some thousand objects.
	frameBytes = 4 << 20
	// largeFrame is the size, before compression, from which a frame is copied as it is.
	largeFrame = frameBytes / 4
	// maxTransaction is the largest size of a transaction. What cannot be compressed gets a little larger.
	maxTransaction = blockfile.MaxPayload - 1<<20
)

// Writer writes a segment. After an error it cannot be used any more.
type Writer struct {
	out   *blockfile.Writer
	frame frame // that is filled
	*workspace
	lastMS int64 // of its last transaction
	totals Totals
}

// workspace is the memory of a Writer.
type workspace struct {
	encoder *zstd.Encoder
	block   []byte // the transactions of the frame
	packed  []byte // the same, compressed
}

// spare is a workspace that is not in use: to make one takes more time than to compress the changes of a second. It has about three times
// the size of a frame.
var spare atomic.Pointer[workspace]

func takeWorkspace() (*workspace, error) {
	if s := spare.Swap(nil); s != nil {
		return s, nil
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(frameBytes), zstd.WithEncoderCRC(false),
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true))
	return &workspace{encoder: encoder}, err
}

// release makes a workspace the spare one.
func (s *workspace) release() {
	if cap(s.block) <= 2*frameBytes { // otherwise a transaction was very large
		spare.Store(s)
	}
}

// NewWriter writes the header of a segment. The caller adds transactions with Write and Append, and calls Close, or after an error
// nothing.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	if h.After < 0 {
		return nil, fmt.Errorf("a segment cannot begin after revision %d", h.After)
	}
	out, err := blockfile.NewWriter(w, line)
	if err != nil {
		return nil, err
	}
	work, err := takeWorkspace()
	if err != nil {
		return nil, err
	}
	s := &Writer{out: out, workspace: work}
	s.begin(h.After)
	s.totals.Through = h.After
	return s, s.json(kindHeader, h)
}

// begin begins a frame after a revision.
func (w *Writer) begin(after int64) {
	w.frame, w.block, w.lastMS = frame{After: after, Totals: Totals{Through: after}}, w.block[:0], 0
}

// json writes a block.
func (w *Writer) json(kind byte, content any) error {
	payload, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return w.out.Block(kind, payload)
}

// Write adds a transaction. Transactions must be in ascending order of their revisions.
func (w *Writer) Write(t Transaction) error {
	last := w.frame.Through
	if err := t.validate(last); err != nil {
		return err
	}
	size := 4*binary.MaxVarintLen64 + len(t.By)
	for i := range t.Operations {
		size += 1 + 3*binary.MaxVarintLen64 + len(t.Operations[i].Key) + len(t.Operations[i].Value)
	}
	if size > maxTransaction {
		return fmt.Errorf("revision %d is too large for a segment: %d bytes", t.Revision, size)
	}
	if len(w.block) > 0 && len(w.block)+size > frameBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	ms := milliseconds(t.Time)
	w.block = appendTransaction(w.block, &t, t.Revision-last, ms-w.lastMS)
	w.lastMS = ms
	w.frame.add(&t)
	return nil
}

// flush writes the frame.
func (w *Writer) flush() error {
	if len(w.block) == 0 {
		return nil
	}
	w.packed = w.encoder.EncodeAll(w.block, w.packed[:0])
	w.frame.Size = len(w.block)
	f := w.frame
	w.begin(f.Through)
	return w.writeFrame(f, w.packed)
}

// writeFrame writes a frame that is complete.
func (w *Writer) writeFrame(f frame, packed []byte) error {
	w.totals.append(f.Totals)
	return errors.Join(w.json(kindFrame, f), w.out.Block(kindChanges, packed))
}

// Append adds a segment of which nothing was read, and which begins where this one has come to. It calls rest now and then. The segment is
// verified as by Next, but large frames are not decompressed.
func (w *Writer) Append(r *Reader, rest func() error) error {
	for {
		f, packed, err := r.nextFrame()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = w.appendFrame(r, f, packed, rest)
		}
		if err == nil {
			err = rest()
		}
		if err != nil {
			return err
		}
	}
}

func (w *Writer) appendFrame(r *Reader, f frame, packed []byte, rest func() error) error {
	if f.Size >= largeFrame && f.After >= w.frame.Through {
		if err := w.flush(); err != nil {
			return err
		}
		w.begin(f.Through)
		return w.writeFrame(f, packed)
	}
	if err := r.unpack(f, packed); err != nil {
		return err
	}
	for len(r.block) > 0 {
		t, err := r.cut()
		if err != nil {
			return err
		}
		if err := errors.Join(w.Write(t), rest()); err != nil {
			return err
		}
	}
	return nil
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
	if through < w.frame.Through {
		return w.totals, fmt.Errorf("a segment with revision %d cannot end at %d", w.frame.Through, through)
	}
	if err := w.flush(); err != nil {
		return w.totals, err
	}
	w.totals.Through = through
	err := errors.Join(w.json(kindTotals, w.totals), w.out.Close())
	w.release()
	w.workspace = nil
	return w.totals, err
}
