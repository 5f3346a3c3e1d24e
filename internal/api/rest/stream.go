package rest

import (
	"net/http"
	"slices"

	"github.com/keelson-dev/keelson/internal/api/rest/gzipsplice"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// gzipThreshold is the size above which responses are compressed, as in
// kube-apiserver. The unit is bytes, before compression.
const gzipThreshold = 128 << 10

// chunk is the number of bytes in one write to the transport. With smaller writes the handler would wait at each
// HTTP/2 frame. The first chunk of a body is longer than gzipThreshold, or it is the whole body.
const chunk = gzipThreshold + 1

// stream sends a long body in chunks, compressed if it is long enough.
type stream struct {
	w     http.ResponseWriter
	gzips bool // the client reads gzip
	begun bool
	z     *gzipsplice.Writer // nil: not compressed
}

// newStream returns a stream of a body in JSON or protobuf of about size bytes. It returns the error of hold.
func newStream(w http.ResponseWriter, r *http.Request, media scheme.Media, size int) (*stream, error) {
	st := &stream{w: w, gzips: apiresponse.AcceptsGzip(r)}
	memory := min(size, bufferSize)
	if st.gzips && size > gzipThreshold/2 {
		memory += bufferSize
	}
	if err := hold(r, memory); err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", media.String())
	return st, nil
}

// flush writes b and returns it empty. b must have at least chunk bytes, or be the end of the body. Otherwise
// begin could not decide whether the body is compressed.
func (st *stream) flush(b []byte) ([]byte, error) {
	st.begin(len(b))
	return b[:0], st.write(b)
}

// item appends an item to the buffer b, and returns the rest that is not written. A long item is written without
// copying, so that a client that does not read it holds no copy of it.
func (st *stream) item(b, item []byte) ([]byte, error) {
	const long = bufferSize - chunk
	if len(b)+len(item) < chunk {
		return append(b, item...), nil
	}
	if len(item) < long {
		return st.flush(append(b, item...))
	}
	st.begin(len(b) + len(item))
	if err := st.write(b); err != nil {
		return b, err
	}
	return b[:0], st.write(item)
}

// begin decides, before the first write, whether the body is compressed. size is the number of bytes in that write.
// This is enough to know: the first write has more than gzipThreshold bytes, or it is the whole body.
func (st *stream) begin(size int) {
	if st.begun {
		return
	}
	st.begun = true
	if st.gzips && size > gzipThreshold {
		beginGzip(st.w, http.StatusOK)
		st.z = gzipsplice.NewWriter(st.w, chunk, *getBuffer())
	}
}

func (st *stream) write(b []byte) error {
	if st.z == nil {
		_, err := st.w.Write(b)
		return err
	}
	return writeZipped(st.z, b)
}

func (st *stream) close() {
	if st.z != nil {
		_ = st.z.Close() // the client is gone
		buf := st.z.Buffer()
		putBuffer(&buf)
	}
}

// writeZipped compresses a text in parts. Each part is compressed completely before it is written: a compressor takes
// much memory and must not wait for the client.
func writeZipped(z *gzipsplice.Writer, text []byte) error {
	for part := range slices.Chunk(text, chunk) {
		piece, err := gzipsplice.Compress(part)
		if err != nil {
			return err
		}
		if z.Piece(piece); z.Err() != nil {
			return z.Err()
		}
	}
	return nil
}
