package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

// Writer writes a snapshot. After an error it cannot be used any more.
type Writer struct {
	out      io.Writer
	hash     hash.Hash
	revision int64
	last     string
	totals   Totals
	kind     byte   // of the next block
	block    []byte // the next block, with space for its head
}

const blockHead = 1 + 4

// NewWriter writes the header of a snapshot. The caller adds entries with Write and must call Close. w gets few,
// large writes.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	if h.Revision < 1 {
		return nil, fmt.Errorf("a snapshot cannot be of revision %d", h.Revision)
	}
	s := &Writer{
		out: w, hash: sha256.New(), revision: h.Revision, kind: kindEntries,
		block: make([]byte, blockHead, blockTargetBytes+4<<10),
	}
	h.Created = h.Created.UTC()
	payload, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	if err := s.write(fmt.Appendf(nil, "%s%d\n", magic, h.Version())); err != nil {
		return nil, err
	}
	return s, s.writeBlock(kindHeader, append(make([]byte, blockHead), payload...))
}

// Write adds an entry. Entries must be in ascending byte order of their keys.
func (w *Writer) Write(e Entry) error {
	if err := e.validate(w.last, w.revision); err != nil {
		return err
	}
	if err := w.reserve(kindEntries, e.Key, len(e.Key)+len(e.Value)+5*binary.MaxVarintLen64); err != nil {
		return err
	}
	w.last = e.Key
	w.totals.add(&e)
	b := binary.AppendUvarint(w.block, uint64(len(e.Key)))
	b = append(b, e.Key...)
	b = binary.AppendUvarint(b, uint64(e.CreateRevision))
	b = binary.AppendUvarint(b, uint64(e.ModRevision))
	b = binary.AppendUvarint(b, uint64(e.Deadline))
	b = binary.AppendUvarint(b, uint64(len(e.Value)))
	w.block = append(b, e.Value...)
	return nil
}

// WritePast adds a record of the past, after all entries. The header must have PastFormat.
func (w *Writer) WritePast(p Past) error {
	if err := w.reserve(kindPast, string(p.Key), len(p.Key)+len(p.Value)+2*binary.MaxVarintLen64); err != nil {
		return err
	}
	w.totals.addPast(p)
	b := binary.AppendUvarint(w.block, uint64(len(p.Key)))
	b = append(b, p.Key...)
	b = binary.AppendUvarint(b, uint64(len(p.Value)))
	w.block = append(b, p.Value...)
	return nil
}

// reserve makes space for size bytes in a block of a kind. key is for the error.
func (w *Writer) reserve(kind byte, key string, size int) error {
	if size > maxPayload {
		return fmt.Errorf("the value of %q is too large for a snapshot", key)
	}
	if kind != w.kind || len(w.block)-blockHead+size > blockTargetBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.kind = kind
	return nil
}

// Close completes the snapshot and returns its totals. It does not close the underlying writer.
func (w *Writer) Close() (Totals, error) {
	payload, err := json.Marshal(w.totals)
	if err != nil {
		return w.totals, err
	}
	err = errors.Join(w.flush(), w.writeBlock(kindTotals, append(make([]byte, blockHead), payload...)))
	if err == nil {
		_, err = w.out.Write(w.hash.Sum(nil))
	}
	return w.totals, err
}

// flush writes the current block, if there is anything in it.
func (w *Writer) flush() error {
	if len(w.block) == blockHead {
		return nil
	}
	b := w.block
	w.block = w.block[:blockHead]
	if len(b) > 2*blockTargetBytes {
		w.block = make([]byte, blockHead, blockTargetBytes+4<<10)
	}
	return w.writeBlock(w.kind, b)
}

// writeBlock sets the head of the block b and writes the block. b begins with space for the head, followed by the
// payload.
func (w *Writer) writeBlock(kind byte, b []byte) error {
	b[0] = kind
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-blockHead))
	return w.write(binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)))
}

func (w *Writer) write(b []byte) error {
	w.hash.Write(b)
	_, err := w.out.Write(b)
	return err
}
