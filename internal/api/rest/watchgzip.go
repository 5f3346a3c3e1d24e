package rest

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"net/http"
	"sync"

	"github.com/klauspost/compress/flate"

	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// zipsWatch reports whether the events of a watch are compressed (the gate WatchListCompression). The watch must
// begin with the objects that exist and mark their end, and the client must accept gzip.
func (h *Handler) zipsWatch(r *http.Request, o *listOptions) bool {
	initial := o.ResourceVersionMatch == "" && (o.ResourceVersion == "" || o.ResourceVersion == "0")
	if o.SendInitialEvents != nil {
		initial = *o.SendInitialEvents
	}
	return h.o.WatchListGzip && initial && o.AllowWatchBookmarks && apiresponse.AcceptsGzip(r)
}

// zipWriter compresses texts to one gzip stream (RFC 1952). Each text is compressed by itself, up to a byte boundary, so that a
// client can read it at once, and a watch that waits for events needs no compressor. Texts are at most some tens of kilobytes
// long.
type zipWriter struct {
	w     io.Writer
	begun bool
	crc   uint32 // of all texts
	size  uint32 // of all texts, modulo 2^32
}

// zipHead is the header of the stream: deflate, no name, time or flags, an unknown operating system.
var zipHead = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}

// lastBlock is an empty block that ends the deflate stream.
var lastBlock = []byte{0x03, 0x00}

// deflaters are compressors that wait for a text.
var deflaters = sync.Pool{New: func() any {
	z, _ := flate.NewWriter(nil, flate.BestSpeed) // BestSpeed is a valid level
	return z
}}

// Write implements io.Writer.
func (z *zipWriter) Write(b []byte) (int, error) {
	buf := getWatchBuffer()
	defer putWatchBuffer(buf)
	out := appender((*buf)[:0])
	if !z.begun {
		z.begun = true
		out = append(out, zipHead...)
	}
	d := deflaters.Get().(*flate.Writer)
	d.Reset(&out)
	_, err := d.Write(b)
	if err == nil {
		err = d.Flush()
	}
	// The pool must not refer to the buffer of this text.
	d.Reset(nil)
	deflaters.Put(d)
	*buf = out
	if err != nil {
		return 0, err
	}
	z.crc = crc32.Update(z.crc, crc32.IEEETable, b)
	z.size += uint32(len(b))
	if _, err := z.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close ends the stream. It does not close the writer below.
func (z *zipWriter) Close() error {
	var out []byte
	if !z.begun {
		out = append(out, zipHead...)
	}
	out = append(out, lastBlock...)
	out = binary.LittleEndian.AppendUint32(out, z.crc)
	out = binary.LittleEndian.AppendUint32(out, z.size)
	_, err := z.w.Write(out)
	return err
}

// appender is a slice that grows by what is written.
type appender []byte

// Write implements io.Writer.
func (a *appender) Write(b []byte) (int, error) {
	*a = append(*a, b...)
	return len(b), nil
}
