package rest

import (
	"io"
	"net/http"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// zipsWatch reports whether the events of a watch are compressed: those of a watch that begins with the objects that exist
// and marks their end, if the client reads gzip (the gate WatchListCompression). Events of other watches never are.
func (h *Handler) zipsWatch(r *http.Request, o *listOptions) bool {
	initial := o.ResourceVersionMatch == "" && (o.ResourceVersion == "" || o.ResourceVersion == "0")
	if o.SendInitialEvents != nil {
		initial = *o.SendInitialEvents
	}
	return h.o.WatchListGzip && initial && o.AllowWatchBookmarks && apiresponse.AcceptsGzip(r)
}

// memberWriter compresses each text to a gzip stream of its own (a member, RFC 1952 section 2.2), so that a watch that waits
// for events or for its client needs no compressor. Texts are at most some tens of kilobytes long.
type memberWriter struct{ w io.Writer }

// memberZippers are compressors with their results.
var memberZippers = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // a level that there is
	return z
}}

// Write implements io.Writer.
func (m memberWriter) Write(b []byte) (int, error) {
	buf := getWatchBuffer()
	defer putWatchBuffer(buf)
	out := appender((*buf)[:0])
	z := memberZippers.Get().(*gzip.Writer)
	z.Reset(&out)
	_, err := z.Write(b)
	if err == nil {
		err = z.Close()
	}
	z.Reset(nil)
	memberZippers.Put(z)
	*buf = out
	if err != nil {
		return 0, err
	}
	if _, err := m.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// appender is a slice that grows by what is written.
type appender []byte

// Write implements io.Writer.
func (a *appender) Write(b []byte) (int, error) {
	*a = append(*a, b...)
	return len(b), nil
}
