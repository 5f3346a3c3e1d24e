package rest

import (
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/keelson-dev/keelson/scheme"
)

// gzipThreshold is the size above which responses are compressed, as in the
// reference.
const gzipThreshold = 128 << 10

// chunk is how much is handed to the transport at a time: fewer, larger writes
// keep the handler from parking at each HTTP/2 frame. The first chunk of a body is
// longer than the threshold, or all of it.
const chunk = gzipThreshold + 1

// stream sends a long body in chunks, compressed if it is long enough.
type stream struct {
	w     http.ResponseWriter
	gzips bool // the client reads gzip
	begun bool
	z     *gzip.Writer // nil: not compressed
}

func newStream(w http.ResponseWriter, r *http.Request) *stream {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", scheme.TypeJSON)
	}
	return &stream{w: w, gzips: acceptsGzip(r)}
}

// flush writes b, which is at least chunk bytes or what is left, and returns it
// emptied.
func (st *stream) flush(b []byte) ([]byte, error) {
	if !st.begun {
		st.begun = true
		if st.gzips && len(b) > gzipThreshold {
			st.z = startGzip(st.w, http.StatusOK)
		}
	}
	var err error
	if st.z != nil {
		_, err = st.z.Write(b)
	} else {
		_, err = st.w.Write(b)
	}
	return b[:0], err
}

func (st *stream) close() {
	if st.z != nil {
		endGzip(st.z)
	}
}

// acceptsGzip says whether the client reads gzip (RFC 9110, 12.5.3). Quality is not
// weighed, but zero is a refusal.
func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(part, ";")
		if strings.TrimSpace(name) == "gzip" {
			quality, _ = strings.CutPrefix(strings.TrimSpace(quality), "q=")
			return strings.Trim(quality, "0.") != "" || quality == ""
		}
	}
	return false
}
