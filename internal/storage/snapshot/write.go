package snapshot

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/keelson-dev/keelson/internal/storage/blockfile"
)

// Writer writes a snapshot. After an error it cannot be used any more.
type Writer struct {
	out      *blockfile.Writer
	revision int64
	last     string
	totals   Totals
}

// NewWriter writes the header of a snapshot. The caller adds entries with Write and must call Close. w gets few,
// large writes.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	if h.Revision < 1 {
		return nil, fmt.Errorf("a snapshot cannot be of revision %d", h.Revision)
	}
	h.Created = h.Created.UTC()
	payload, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	out, err := blockfile.NewWriter(w, fmt.Sprintf("%s%d\n", magic, h.Version()))
	if err != nil {
		return nil, err
	}
	return &Writer{out: out, revision: h.Revision}, out.Block(kindHeader, payload)
}

// Write adds an entry. Entries must be in ascending byte order of their keys.
func (w *Writer) Write(e Entry) error {
	if err := e.validate(w.last, w.revision); err != nil {
		return err
	}
	w.last = e.Key
	w.totals.add(&e)
	return w.add(kindEntries, e.Key, len(e.Key)+len(e.Value)+5*binary.MaxVarintLen64, func(b []byte) []byte {
		b = blockfile.AppendBytes(b, e.Key)
		b = binary.AppendUvarint(b, uint64(e.CreateRevision))
		b = binary.AppendUvarint(b, uint64(e.ModRevision))
		b = binary.AppendUvarint(b, uint64(e.Deadline))
		return blockfile.AppendBytes(b, e.Value)
	})
}

// WritePast adds a record of the past, after all entries. The header must have PastFormat.
func (w *Writer) WritePast(p Past) error {
	w.totals.addPast(p)
	return w.add(kindPast, string(p.Key), len(p.Key)+len(p.Value)+2*binary.MaxVarintLen64, func(b []byte) []byte {
		return blockfile.AppendBytes(blockfile.AppendBytes(b, p.Key), p.Value)
	})
}

// add adds a record of at most size bytes. key is for the error.
func (w *Writer) add(kind byte, key string, size int, encode func([]byte) []byte) error {
	if size > blockfile.MaxPayload {
		return fmt.Errorf("the value of %q is too large for a snapshot", key)
	}
	return w.out.Add(kind, size, encode)
}

// Close completes the snapshot and returns its totals. It does not close the underlying writer.
func (w *Writer) Close() (Totals, error) {
	payload, err := json.Marshal(w.totals)
	if err != nil {
		return w.totals, err
	}
	if err := w.out.Block(kindTotals, payload); err != nil {
		return w.totals, err
	}
	return w.totals, w.out.Close()
}
