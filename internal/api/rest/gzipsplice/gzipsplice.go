// Package gzipsplice assembles gzip streams (RFC 1952) from pieces that were compressed separately. If most of a
// long text does not change between two responses, its pieces are compressed only once.
package gzipsplice

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
)

// A Piece is a text compressed to blocks of deflate (RFC 1951). The blocks end at a byte boundary, refer to
// nothing before them and are not marked as the last. So a piece can be at any position of a stream. A head before
// the blocks has the data to continue the checksum of the stream. A piece is immutable.
type Piece []byte

// The head of a piece, big-endian: the CRC-32 of its text, the factor that appending
// the text multiplies a checksum by, and the length of the text.
const (
	sumAt    = 0
	factorAt = 4
	lengthAt = 8
	headSize = 16
)

// Len is the length of the piece's text.
func (p Piece) Len() int64 { return int64(binary.BigEndian.Uint64(p[lengthAt:])) }

var compressors = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.BestSpeed) // BestSpeed is a valid level
	return &compressor{w: w}
}}

// compressor collects in out the compressed bytes that its w writes.
type compressor struct {
	w   *flate.Writer
	out []byte
}

func (c *compressor) Write(b []byte) (int, error) {
	c.out = append(c.out, b...)
	return len(b), nil
}

// Compress makes the piece of a text.
func Compress(text []byte) (Piece, error) {
	c := compressors.Get().(*compressor)
	defer compressors.Put(c)
	c.out = c.out[:0]
	c.out = binary.BigEndian.AppendUint32(c.out, crc32.ChecksumIEEE(text))
	c.out = binary.BigEndian.AppendUint32(c.out, factor(int64(len(text))))
	c.out = binary.BigEndian.AppendUint64(c.out, uint64(len(text)))
	c.w.Reset(c)
	_, err := c.w.Write(text)
	if err == nil {
		err = c.w.Flush()
	}
	c.w.Reset(nil)
	// The compressor goes back to the pool with its buffer, so the piece is a copy.
	return bytes.Clone(c.out), err
}

// header begins every stream: deflate, no name, no time, unknown system.
var header = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}

// lastBlock is an empty block of fixed codes that is marked as the last. Pieces do not mark their last block, so
// that another piece can follow.
var lastBlock = []byte{3, 0}

// maxStored is the largest number of bytes in a block without compression. The length has 16 bits (RFC 1951
// section 3.2.4).
const maxStored = 1<<16 - 1

// Writer writes one gzip stream. After an error it writes nothing any more; Close
// returns it.
type Writer struct {
	out    io.Writer
	buf    []byte
	chunk  int
	sum    uint32
	length uint32 // modulo 2^32, as the format has it
	err    error
}

// NewWriter begins a stream. It writes to out in chunks of about chunk bytes, which it puts together in buf. buf
// may be nil.
func NewWriter(out io.Writer, chunk int, buf []byte) *Writer {
	return &Writer{out: out, chunk: chunk, buf: append(buf[:0], header...)}
}

// Piece appends the text of a piece. The checksum is continued by one multiplication; the text itself is not
// needed.
func (w *Writer) Piece(p Piece) {
	if len(p) < headSize {
		w.fail(errors.New("zipped: not a piece"))
		return
	}
	w.sum = multiply(binary.BigEndian.Uint32(p[factorAt:]), w.sum) ^ binary.BigEndian.Uint32(p[sumAt:])
	w.length += uint32(p.Len())
	w.append(p[headSize:])
}

// Text appends a short text without compressing it.
func (w *Writer) Text(text []byte) {
	w.sum = crc32.Update(w.sum, crc32.IEEETable, text)
	w.length += uint32(len(text))
	for len(text) > 0 {
		n := min(len(text), maxStored)
		var head [5]byte // the kind of block, filled up to a byte; its length, and the complement
		binary.LittleEndian.PutUint16(head[1:], uint16(n))
		binary.LittleEndian.PutUint16(head[3:], ^uint16(n))
		w.append(head[:])
		w.append(text[:n])
		text = text[n:]
	}
}

// Err returns the error after which nothing is written any more, nil if there was none.
func (w *Writer) Err() error { return w.err }

// Close ends the stream and writes the rest of it.
func (w *Writer) Close() error {
	w.append(lastBlock)
	w.buf = binary.LittleEndian.AppendUint32(w.buf, w.sum)
	w.buf = binary.LittleEndian.AppendUint32(w.buf, w.length)
	w.flush()
	return w.err
}

// Buffer returns the buffer for other use. The writer must not be used any more.
func (w *Writer) Buffer() []byte { return w.buf }

func (w *Writer) append(b []byte) {
	w.buf = append(w.buf, b...)
	if len(w.buf) >= w.chunk {
		w.flush()
	}
}

func (w *Writer) flush() {
	if w.err == nil {
		_, err := w.out.Write(w.buf)
		w.fail(err)
	}
	w.buf = w.buf[:0]
}

func (w *Writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}
