// Package openapi serves the OpenAPI documents: /openapi/v2, and under
// /openapi/v3 an index and a document for each group, version and other path.
//
// The documents of the built-in groups are compiled in (see package archive). Their
// definitions are those that kube-openapi's generator makes of the types of the
// API modules; their paths are those that Kubernetes 1.36 serves with its default
// flags, recorded, and not derived from the kinds that are declared here. Both
// are put together when the project is developed (internal/gen/openapi).
// Documents of other groups come from Sources.
//
// A document is assembled when somebody asks for it. What is kept of it is its
// compressed form, within a limit; nothing parsed is kept.
package openapi

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/apiresponse"
	"github.com/keelson-dev/keelson/discovery/openapi/archive"
)

// A Document names a document of OpenAPI v3.
type Document struct {
	// Path is what follows /openapi/v3/, such as "apis/example.com/v1".
	Path string
	// ETag changes whenever the document does, and is not empty. It becomes part of URLs.
	ETag string
}

// ErrGone is the error of a Source that no longer has a document.
var ErrGone = errors.New("openapi: no such document")

// A Source gives the documents of groups that are not built in: of custom
// resources, of aggregated APIs. It is called concurrently, for every request that concerns
// it, and must have made what it returns before or make it in little time, since the
// context of a call does not end when a client goes away. What it returns is not
// changed afterwards, by either side.
type Source interface {
	// Documents lists the documents there are at present, in the same order until they
	// change. It is called for each request. A path that is built in or of
	// an earlier source is not served from this one.
	Documents() []Document
	// V3 returns a document of OpenAPI v3 as JSON, and its ETag. The error is ErrGone
	// if there is no such document any more.
	V3(ctx context.Context, path string) (text []byte, etag string, err error)
	// V2 returns what the path adds to the document of OpenAPI v2, as JSON: an object with
	// the members "paths" and "definitions", either of which may be missing. A
	// path or definition that is there already, under the same name, is not added. With
	// an error other than ErrGone the document is served without it, and not kept.
	V2(ctx context.Context, path string) ([]byte, error)
}

// Options says what a Handler serves.
type Options struct {
	// Enabled tells whether the built-in document of a path ("apis/batch/v1") is
	// served. All are if it is nil. It must not change its mind.
	Enabled func(path string) bool
	// Sources are asked in this order.
	Sources []Source
	// CacheBytes bounds the compressed documents that are kept; 4 MiB if zero.
	CacheBytes int
	// Logger gets the errors of sources; slog.Default() if nil.
	Logger *slog.Logger
}

// A Handler serves /openapi/v2 and everything under /openapi/v3.
type Handler struct {
	archive *archive.Archive
	enabled func(path string) bool
	all     bool // all built-in documents are enabled
	sources []Source
	cache   cache
	since   time.Time
	log     *slog.Logger
}

// New returns a Handler. It does no work that is not needed for every request.
func New(o Options) (*Handler, error) {
	a, err := Builtin()
	if err != nil {
		return nil, err
	}
	h := &Handler{archive: a, enabled: o.Enabled, all: true, sources: o.Sources, since: time.Now(), log: o.Logger}
	if h.enabled == nil {
		h.enabled = func(string) bool { return true }
	}
	for _, d := range a.V3() {
		h.all = h.all && h.enabled(d.Path)
	}
	if h.log == nil {
		h.log = slog.Default()
	}
	h.cache.limit = o.CacheBytes
	if h.cache.limit == 0 {
		h.cache.limit = 4 << 20
	}
	return h, nil
}

// ServeHTTP answers 404 to any other path.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const v3 = "/openapi/v3"
	switch path, below := strings.CutPrefix(r.URL.Path, v3+"/"); {
	case r.URL.Path == "/openapi/v2":
		h.serveV2(w, r)
	case r.URL.Path == v3:
		h.serveIndex(w, r)
	case below:
		h.serveV3(w, r, path)
	default:
		http.NotFound(w, r)
	}
}

// A format is a way to write a document.
type format int

const (
	asJSON format = iota
	asProtobuf
)

// A mediaType is one that a client may ask for.
type mediaType struct {
	subtype string
	format  format
	sent    string // the content type of the answer
}

// The first of equal preference comes first.
var (
	v2Types = []mediaType{
		{"json", asJSON, "application/json"},
		{"com.github.proto-openapi.spec.v2@v1.0+protobuf", asProtobuf, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"},
		{"com.github.proto-openapi.spec.v2.v1.0+protobuf", asProtobuf, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"},
	}
	v3Types = []mediaType{
		{"json", asJSON, "application/json"},
		{"com.github.proto-openapi.spec.v3.v1.0+protobuf", asProtobuf, "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"},
		{"com.github.proto-openapi.spec.v3@v1.0+protobuf", asProtobuf, "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"},
	}
)

func negotiate(r *http.Request, types []mediaType) (mediaType, bool) {
	for _, clause := range apiresponse.ParseAccept(r.Header.Get("Accept")) {
		if clause.Type != "*" && clause.Type != "application" {
			continue
		}
		for _, t := range types {
			if clause.Subtype == "*" || clause.Subtype == t.subtype {
				return t, true
			}
		}
	}
	return mediaType{}, false
}

// documents calls yield with every document of OpenAPI v3 and the source it is from, nil
// for a built-in one.
func (h *Handler) documents(yield func(Document, Source) bool) {
	for _, d := range h.archive.V3() {
		if h.enabled(d.Path) && !yield(Document{Path: d.Path, ETag: d.ETag}, nil) {
			return
		}
	}
	for _, s := range h.sources {
		for _, d := range s.Documents() {
			if !yield(d, s) {
				return
			}
		}
	}
}

func (h *Handler) find(path string) (d Document, s Source, found bool) {
	for d, s := range h.documents {
		if d.Path == path {
			return d, s, true
		}
	}
	return Document{}, nil, false
}

// etag is made of the names of the documents, so that it is known without making
// anything of them. It begins with kind.
func (h *Handler) etag(kind string) string {
	hash := sha256.New()
	line := append([]byte(kind), '\n')
	for d := range h.documents {
		line = append(line, d.Path...)
		line = append(line, ' ')
		line = append(line, d.ETag...)
		line = append(line, '\n')
		hash.Write(line)
		line = line[:0]
	}
	return fmt.Sprintf("%X", hash.Sum(nil))
}

func (h *Handler) serveIndex(w http.ResponseWriter, r *http.Request) {
	etag := h.etag("index")
	// The index is not negotiated and has no better type, for as long as there is one.
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Etag", strconv.Quote(etag))
	h.serve(w, r, key{indexPath, asJSON, etag}, time.Time{}, func(out io.Writer) error {
		if err := h.writeIndex(out); err != nil {
			return err
		}
		if h.etag("index") != etag {
			return errDoNotCache
		}
		return nil
	})
}

const indexPath = "?index" // in the cache; no document has it

func (h *Handler) writeIndex(out io.Writer) error {
	type entry struct {
		URL string `json:"serverRelativeURL"`
	}
	var index struct {
		Paths map[string]entry `json:"paths"`
	}
	index.Paths = map[string]entry{}
	for d := range h.documents {
		if _, seen := index.Paths[d.Path]; !seen {
			index.Paths[d.Path] = entry{documentURL(d)}
		}
	}
	text, err := json.Marshal(index)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

func documentURL(d Document) string {
	u := url.URL{Path: "/openapi/v3/" + d.Path, RawQuery: url.Values{"hash": {d.ETag}}.Encode()}
	return u.String()
}

func (h *Handler) serveV3(w http.ResponseWriter, r *http.Request, path string) {
	document, source, found := h.find(path)
	if !found {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Add("Vary", "Accept")
	media, ok := negotiate(r, v3Types)
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	w.Header().Set("Content-Type", media.sent)
	w.Header().Set("Etag", strconv.Quote(document.ETag))
	if hash := r.URL.Query().Get("hash"); hash != "" {
		if hash != document.ETag {
			http.Redirect(w, r, documentURL(document), http.StatusMovedPermanently)
			return
		}
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().UTC().AddDate(1, 0, 0).Format(http.TimeFormat))
	}
	modified := h.since
	if source != nil {
		modified = time.Time{}
	}
	ctx := context.WithoutCancel(r.Context()) // others may wait for the result
	h.serve(w, r, key{path, media.format, document.ETag}, modified, func(out io.Writer) error {
		text, etag, err := h.readV3(ctx, source, path)
		if err != nil {
			return err
		}
		if source != nil && etag != document.ETag {
			return errChanged
		}
		if media.format == asProtobuf {
			return writeV3Protobuf(out, text)
		}
		_, err = out.Write(text)
		return err
	})
}

// errChanged tells that a source's document changed between listing and reading.
var errChanged = errors.New("openapi: the document has just changed")

func (h *Handler) readV3(ctx context.Context, source Source, path string) (text []byte, etag string, err error) {
	if source != nil {
		return source.V3(ctx, path)
	}
	text, err = h.archive.ReadV3(path)
	return text, "", err
}

func (h *Handler) serveV2(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("Vary", "Accept")
	media, ok := negotiate(r, v2Types)
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	etag := h.etagV2()
	w.Header().Set("Content-Type", media.sent)
	w.Header().Set("Etag", strconv.Quote(etag))
	modified := h.since
	if etag != h.archive.V2().ETag {
		modified = time.Time{}
	}
	ctx := context.WithoutCancel(r.Context()) // others may wait for the result
	h.serve(w, r, key{"", media.format, etag}, modified, func(out io.Writer) error {
		parts, incomplete := h.readV2(ctx)
		if incomplete != nil && !errors.Is(incomplete, errDoNotCache) {
			return incomplete
		}
		write := parts.writeJSON
		if media.format == asProtobuf {
			write = parts.writeProtobuf
		}
		if err := write(out); err != nil {
			return err
		}
		if h.etagV2() != etag {
			return errDoNotCache
		}
		return incomplete
	})
}

// serve writes the document that write produces, from the cache if it is there.
// The headers that describe the document are set. When it was modified is said of
// built-in documents only; of others the ETag alone is known.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, k key, modified time.Time, write func(io.Writer) error) {
	w.Header().Add("Vary", "Accept-Encoding")
	read := h.uncompressed
	if apiresponse.AcceptsGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		read = h.cache.get
	}
	content := &lazyContent{load: func() ([]byte, error) {
		text, err := read(k, write)
		if errors.Is(err, errDoNotCache) {
			w.Header().Del("Etag")
			return text, nil
		}
		return text, err
	}}
	// A failure is found out when the size is asked for, before anything is written.
	http.ServeContent(&errorReplacer{ResponseWriter: w, content: content, fail: func(err error) { h.fail(w, k.path, err) }}, r, "", modified, content)
}

// plain is for the few clients that do not take gzip. What costs much to make is
// taken from the cache; JSON is not: it is made again in less time than it takes to compress.
func (h *Handler) uncompressed(k key, write func(io.Writer) error) ([]byte, error) {
	if k.format == asJSON {
		var b bytes.Buffer
		err := write(&b)
		return b.Bytes(), err
	}
	compressed, incomplete := h.cache.get(k, write)
	if incomplete != nil && !errors.Is(incomplete, errDoNotCache) {
		return nil, incomplete
	}
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(z)
	return text, cmp.Or(err, incomplete)
}

func (h *Handler) fail(w http.ResponseWriter, what string, err error) {
	for _, name := range []string{"Etag", "Cache-Control", "Expires", "Last-Modified", "Content-Encoding", "Content-Type", "X-Content-Type-Options"} {
		w.Header().Del(name)
	}
	if errors.Is(err, ErrGone) {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if errors.Is(err, errChanged) {
		w.Header().Set("Retry-After", "1")
	}
	h.log.Error("OpenAPI document not served", "document", what, "err", err)
	w.WriteHeader(http.StatusServiceUnavailable)
}
