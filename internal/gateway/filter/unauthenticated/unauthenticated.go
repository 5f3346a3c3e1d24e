// Package unauthenticated is the filter that serves pages which need no credentials: the page at / and the web
// console. It decides for all of them whether they are served, and limits what their requests can use of the
// server.
//
// A page is open if requests without credentials are allowed for its path, by the same rule as all other such
// requests. The filter limits how many of these requests are served at a time, in total and for one client
// address, and how long each may take, because anybody can send them. A request above the limits is answered 429
// without a body, so that nothing waits for a client that does not read.
package unauthenticated

import (
	"net/http"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/fairshare"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

const (
	// maxRequests is how many requests are served at a time, and addressRequests how many of them for one client address. A browser
	// that opens the console sends less than ten; many people may be behind one address.
	maxRequests, addressRequests = 512, 128
	// writeTime is how long a client may take to read a response. The largest file has 120 KB.
	writeTime = 30 * time.Second
	// retryAfter is the number of seconds that a refused client should wait.
	retryAfter = "1"
)

// Page is a page that is served without credentials. It may have several paths.
type Page struct {
	// Path decides about all paths of the page: they are served if the rule for anonymous requests allows Path.
	Path string
	// Serves reports whether a request is for the page.
	Serves func(*http.Request) bool
	// Handler serves the page. It must not write more than a few KiB that are made for one request. Bytes that all
	// requests share do not count.
	Handler http.Handler
}

// Options are the dependencies of the filter.
type Options struct {
	Pages []Page
	// Allows reports whether requests without credentials are allowed for a path. Pages that it does not allow are not served.
	Allows func(path string) bool
	// Refused is called for each request that is refused. See NewMetrics.
	Refused func()
}

// New returns the filter, nil if no page is open.
func New(o Options) func(http.Handler) http.Handler {
	f := &filter{places: fairshare.NewAddresses(maxRequests, addressRequests), refused: o.Refused}
	for _, p := range o.Pages {
		if o.Allows(p.Path) {
			f.pages = append(f.pages, p)
		}
	}
	if len(f.pages) == 0 {
		return nil
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, p := range f.pages {
				if p.Serves(r) {
					f.serve(w, r, p.Handler)
					return
				}
			}
			next.ServeHTTP(w, r)
		})
	}
}

type filter struct {
	pages   []Page
	places  *fairshare.Addresses
	refused func()
}

func (f *filter) serve(w http.ResponseWriter, r *http.Request, page http.Handler) {
	address := fairshare.ClientAddress(r.RemoteAddr)
	if !f.places.Take(address) {
		f.refused()
		h := w.Header()
		h.Set("Retry-After", retryAfter)
		h.Set("Content-Length", "0")
		h.Set("Connection", "close") // further requests cost the client a handshake
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	defer f.places.Free(address)
	connection := http.NewResponseController(w)
	// This fails only for ResponseWriters without a connection, as in some tests.
	limited := connection.SetWriteDeadline(time.Now().Add(writeTime)) == nil
	page.ServeHTTP(w, r)
	if limited {
		// What is left in buffers is a part of the response, too. The client may be gone.
		_ = connection.Flush()
		if r.ProtoMajor == 1 { // the connection may serve other requests
			_ = connection.SetWriteDeadline(time.Time{})
		}
	}
}

// NewMetrics registers the metric of refused requests, and returns the function that counts one. It may be called
// once.
func NewMetrics(m *metrics.Metrics) (refused func()) {
	return m.Counters("keelson_unauthenticated_refused_total",
		"Requests for pages that need no credentials which were refused, because too many others were served.").WithLabelValues().Inc
}
