// Package blockfile reads and writes files of blocks, in which every change, every missing byte and every byte too many is found.
// The files of packages snapshot and changelog are made of it.
//
// # Format
//
//	a line with the name and the version of the format
//	blocks
//	32 bytes      SHA-256 of all bytes before
//
// A block is its kind (one byte), the length of its payload (four bytes, big endian), the payload, and the CRC-32C of all these
// (four bytes, big endian). What the kinds mean, and which block is the last one, is decided by the packages that use it.
package blockfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

const (
	// MaxPayload is the largest size of the payload of a block, in bytes, and so of a record.
	MaxPayload = 64 << 20
	// targetBytes is the size of a block with several records. A larger record has a block of its own.
	targetBytes = 256 << 10
	headLength  = 1 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Writer writes a file. After an error it cannot be used any more.
type Writer struct {
	out   io.Writer
	hash  hash.Hash
	kind  byte   // of the next block
	block []byte // the next block, with space for its head
}

// NewWriter writes the first line of a file, which must end with a line break. w gets few, large writes.
func NewWriter(w io.Writer, line string) (*Writer, error) {
	b := &Writer{out: w, hash: sha256.New(), block: emptyBlock()}
	return b, b.write([]byte(line))
}

func emptyBlock() []byte { return make([]byte, headLength, targetBytes+4<<10) }

// Add adds a record of at most size bytes to a block of a kind. encode appends the record to its argument. Records that follow
// each other share a block; none is split. size must not be above MaxPayload.
func (w *Writer) Add(kind byte, size int, encode func(b []byte) []byte) error {
	if kind != w.kind || len(w.block)-headLength+size > targetBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.kind, w.block = kind, encode(w.block)
	return nil
}

// Block writes a block with a payload.
func (w *Writer) Block(kind byte, payload []byte) error {
	if err := w.flush(); err != nil {
		return err
	}
	return w.writeBlock(kind, append(make([]byte, headLength), payload...))
}

// Close writes the checksum. It does not close the underlying writer.
func (w *Writer) Close() error {
	if err := w.flush(); err != nil {
		return err
	}
	_, err := w.out.Write(w.hash.Sum(nil))
	return err
}

// flush writes the current block, if there is anything in it.
func (w *Writer) flush() error {
	if len(w.block) == headLength {
		return nil
	}
	b := w.block
	w.block = w.block[:headLength]
	if len(b) > 2*targetBytes {
		w.block = emptyBlock()
	}
	return w.writeBlock(w.kind, b)
}

// writeBlock writes a block. b begins with space for the head, followed by the payload.
func (w *Writer) writeBlock(kind byte, b []byte) error {
	b[0] = kind
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-headLength))
	return w.write(binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)))
}

func (w *Writer) write(b []byte) error {
	w.hash.Write(b)
	_, err := w.out.Write(b)
	return err
}

// Reader reads a file and verifies it. The file is verified completely only when End has returned no error.
type Reader struct {
	in      io.Reader
	hash    hash.Hash
	offset  int64
	damaged error
}

// NewReader returns a Reader. Errors about a file that is not as it was written wrap damaged.
func NewReader(r io.Reader, damaged error) *Reader {
	return &Reader{in: r, hash: sha256.New(), damaged: damaged}
}

// Damaged returns an error that wraps the one of NewReader.
func (r *Reader) Damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", r.damaged, fmt.Sprintf(format, args...))
}

// Offset returns the number of bytes that were read.
func (r *Reader) Offset() int64 { return r.offset }

// Line reads the first line, which has n bytes.
func (r *Reader) Line(n int) (string, error) {
	b := make([]byte, n)
	err := r.read(b)
	return string(b), err
}

// Next returns the next block with a payload in new memory. It allocates memory only for data that it has read, because the length
// in a damaged file may be wrong.
func (r *Reader) Next() (kind byte, payload []byte, err error) {
	at := r.offset
	var head [headLength]byte
	if err := r.read(head[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.BigEndian.Uint32(head[1:]))
	if n > MaxPayload {
		return 0, nil, r.Damaged("a block of %d bytes at byte %d", n, at)
	}
	crc := crc32.Checksum(head[:], castagnoli)
	for len(payload) < n {
		// The pieces double in size, beginning with the size of an ordinary block.
		piece := min(n-len(payload), max(len(payload), 2*targetBytes))
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
		return 0, nil, r.Damaged("the checksum of the block at byte %d is wrong", at)
	}
	return head[0], payload, nil
}

// End verifies the SHA-256 and that nothing follows it. It must be called after the last block, and returns the SHA-256.
func (r *Reader) End() ([]byte, error) {
	want := r.hash.Sum(nil)
	sum := make([]byte, len(want))
	if err := r.read(sum); err != nil {
		return nil, err
	}
	if !bytes.Equal(sum, want) {
		return nil, r.Damaged("its SHA-256 is wrong")
	}
	switch n, err := io.ReadFull(r.in, make([]byte, 1)); {
	case n != 0:
		return nil, r.Damaged("something follows its end")
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	return sum, nil
}

// read fills b.
func (r *Reader) read(b []byte) error {
	n, err := io.ReadFull(r.in, b)
	r.hash.Write(b[:n])
	r.offset += int64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return r.Damaged("it ends at byte %d, in its middle", r.offset)
	}
	return err
}

// CutBytes decodes a length as a uvarint and that many bytes, which share memory with b. rest is what follows.
func CutBytes(b []byte) (field, rest []byte, ok bool) {
	u, n := binary.Uvarint(b)
	if n <= 0 || u > uint64(len(b)-n) {
		return nil, nil, false
	}
	end := n + int(u)
	return b[n:end:end], b[end:], true
}

// AppendBytes appends the length of field as a uvarint, and field.
func AppendBytes[T ~string | ~[]byte](b []byte, field T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(field))), field...)
}
