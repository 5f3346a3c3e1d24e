// Package openapi serves the OpenAPI documents: /openapi/v2, and below /openapi/v3 an index and a document for each
// group version and each other path.
//
// The documents of the built-in groups are part of the program (see package archive). A generator
// (internal/gen/openapi) makes them: kube-openapi generates the definitions from the types of the API modules, and the
// paths are recorded from Kubernetes 1.37 with --runtime-config=api/all=true and the feature gates of kinds. They are
// not derived from the kinds that this repository declares; Options select the served ones. Documents of other groups
// come from Sources.
//
// A document is made when it is requested. Only compressed documents are cached, up to a limit.
package openapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/api/discovery/openapi/archive"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// A Document identifies an OpenAPI v3 document.
type Document struct {
	// Path is the path after /openapi/v3/, such as "apis/example.com/v1".
	Path string
	// ETag changes whenever the document changes. It is not empty, and is a part of URLs.
	ETag string
	// V2 changes whenever the result of Source.V2 changes while ETag does not.
	V2 string
}

// ErrGone is returned by a Source that no longer has a document.
var ErrGone = errors.New("openapi: no such document")

// A Source provides the documents of groups that are not built in: custom resources and
// aggregated APIs. It is called concurrently, for every request. It must return quickly,
// because the context of a call is not canceled when the client goes away. Neither side
// changes the returned data.
type Source interface {
	// Documents returns the current documents, in the same order until they change. It is
	// called for each request. A path that is built in, or that an earlier source has, is
	// not served from this source.
	Documents() []Document
	// V3 returns an OpenAPI v3 document as JSON, and its ETag. It returns ErrGone if there is no
	// such document any more.
	V3(ctx context.Context, path string) (text []byte, etag string, err error)
	// V2 returns the part of the path in the OpenAPI v2 document, as JSON: an object with the members "paths" and
	// "definitions", either of which may be missing. Paths and definitions whose names exist already are not added. If
	// it returns an error other than ErrGone, the document is served without this part and is not cached.
	V2(ctx context.Context, path string) ([]byte, error)
}

// Options configure a Handler.
type Options struct {
	// Enabled reports whether the built-in document of a path ("apis/batch/v1") is served. Its
	// results must not change. If nil, all documents are served.
	Enabled func(path string) bool
	// Hidden are the resources that are not served, by the path of the built-in document that has them.
	Hidden map[string][]string
	// Version is the release of Kubernetes that the built-in documents name, such as 1.36. If it is empty, they
	// name the release that they were made for.
	Version string
	// Sources are used in this order.
	Sources []Source
	// CacheBytes is the size of the cache for compressed documents; 0 stands for 4 MiB.
	CacheBytes int
	// Logger gets the errors of sources; nil stands for slog.Default().
	Logger *slog.Logger
}

// A Handler serves /openapi/v2 and all paths below /openapi/v3.
type Handler struct {
	archive *archive.Archive
	enabled func(path string) bool
	all     bool // all built-in documents are enabled and nothing in them is hidden
	hidden  map[string][]string
	version string // if empty, the release of the archive
	// etags returns the ETags of the documents that differ from those of the archive, by path.
	etags func() map[string]string
	// reducedETag returns the ETag of the built-in OpenAPI v2 document without unserved resources.
	reducedETag func() (string, error)
	sources     []Source
	cache       cache
	since       time.Time
	log         *slog.Logger
}

// New returns a Handler.
func New(o Options) (*Handler, error) {
	a, err := Builtin()
	if err != nil {
		return nil, err
	}
	h := &Handler{archive: a, enabled: o.Enabled, all: true, sources: o.Sources, since: time.Now(), log: o.Logger,
		hidden: o.Hidden, version: o.Version}
	if h.enabled == nil {
		h.enabled = func(string) bool { return true }
	}
	for _, d := range a.V3() {
		h.all = h.all && h.enabled(d.Path) && len(h.hidden[d.Path]) == 0
	}
	h.all = h.all && h.version == ""
	h.etags = sync.OnceValue(h.hashChanged)
	if h.log == nil {
		h.log = slog.Default()
	}
	h.reducedETag = sync.OnceValues(h.hashReduced)
	h.cache.limit = o.CacheBytes
	if h.cache.limit == 0 {
		h.cache.limit = 4 << 20
	}
	return h, nil
}

// hashChanged returns the ETags of the built-in documents that are not served as they are in the archive, by path.
func (h *Handler) hashChanged() map[string]string {
	etags := map[string]string{}
	for _, d := range h.archive.V3() {
		if !h.enabled(d.Path) || h.version == "" && len(h.hidden[d.Path]) == 0 {
			continue
		}
		text, err := h.readBuiltIn(d.Path)
		if err != nil {
			h.log.Error("a built-in OpenAPI document cannot be read", "document", d.Path, "error", err)
			continue
		}
		etags[d.Path] = etagOf(text)
	}
	return etags
}

// ServeHTTP serves the paths of the package comment and responds 404 to all others.
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

// A format is an encoding of a document.
type format int

const (
	asJSON format = iota
	asProtobuf
)

// A mediaType is one that a client may request.
type mediaType struct {
	subtype string
	format  format
	sent    string // the Content-Type of the response
}

// The media types in order of preference.
var (
	v2Types = []mediaType{
		{"json", asJSON, "application/json"},
		{"com.github.proto-openapi.spec.v2@v1.0+protobuf", asProtobuf,
			"application/com.github.proto-openapi.spec.v2.v1.0+protobuf"},
		{"com.github.proto-openapi.spec.v2.v1.0+protobuf", asProtobuf,
			"application/com.github.proto-openapi.spec.v2.v1.0+protobuf"},
	}
	v3Types = []mediaType{
		{"json", asJSON, "application/json"},
		{"com.github.proto-openapi.spec.v3.v1.0+protobuf", asProtobuf,
			"application/com.github.proto-openapi.spec.v3.v1.0+protobuf"},
		{"com.github.proto-openapi.spec.v3@v1.0+protobuf", asProtobuf,
			"application/com.github.proto-openapi.spec.v3.v1.0+protobuf"},
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

// documents calls yield with each OpenAPI v3 document and its source, which is nil for a
// built-in one.
func (h *Handler) documents(yield func(Document, Source) bool) {
	etags := h.etags()
	for _, d := range h.archive.V3() {
		if h.enabled(d.Path) && !yield(Document{Path: d.Path, ETag: cmp.Or(etags[d.Path], d.ETag)}, nil) {
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

// etag returns an ETag that is computed from the ETags of the documents, so no document has to
// be made for it. It begins with kind.
func (h *Handler) etag(kind string) string {
	hash := sha256.New()
	line := append([]byte(kind), '\n')
	for d := range h.documents {
		line = append(line, d.Path...)
		line = append(line, ' ')
		line = append(line, d.ETag...)
		if d.V2 != "" {
			line = append(append(line, ' '), d.V2...)
		}
		line = append(line, '\n')
		hash.Write(line)
		line = line[:0]
	}
	return fmt.Sprintf("%X", hash.Sum(nil))
}

func (h *Handler) serveIndex(w http.ResponseWriter, r *http.Request) {
	etag := h.etag("index")
	// The media type of the index is not negotiated. It is the type that kube-apiserver sends.
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

const indexPath = "?index" // the key of the index in the cache; no document has this path

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
	ctx := context.WithoutCancel(r.Context()) // other requests may wait for the result
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

// errChanged means that a source's document has changed after it was listed and before it was read.
var errChanged = errors.New("openapi: the document has just changed")

func (h *Handler) readV3(ctx context.Context, source Source, path string) (text []byte, etag string, err error) {
	if source != nil {
		return source.V3(ctx, path)
	}
	text, err = h.readBuiltIn(path)
	return text, "", err
}

// readBuiltIn returns a built-in document without its hidden parts.
func (h *Handler) readBuiltIn(path string) ([]byte, error) {
	text, err := h.archive.ReadV3(path)
	text = h.withVersion(text)
	if hidden := h.hidden[path]; err == nil && len(hidden) > 0 {
		return partial(path, text, hidden)
	}
	return text, err
}

// versionPrefix is what comes before the release of Kubernetes in a document.
const versionPrefix = `"info":{"title":"Kubernetes","version":"`

// withVersion replaces the release of Kubernetes in text by h.version. text is a document of the archive, or the
// part that has the release.
func (h *Handler) withVersion(text []byte) []byte {
	before, after, found := bytes.Cut(text, []byte(versionPrefix))
	if h.version == "" || !found {
		return text
	}
	_, after, _ = bytes.Cut(after, []byte(`"`))
	return slices.Concat(before, []byte(versionPrefix+h.version+`"`), after)
}

func (h *Handler) serveV2(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("Vary", "Accept")
	media, ok := negotiate(r, v2Types)
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	etag, builtIn := h.etagV2()
	w.Header().Set("Content-Type", media.sent)
	w.Header().Set("Etag", strconv.Quote(etag))
	modified := h.since
	if !builtIn {
		modified = time.Time{}
	}
	ctx := context.WithoutCancel(r.Context()) // other requests may wait for the result
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
		if now, _ := h.etagV2(); now != etag {
			return errDoNotCache
		}
		return incomplete
	})
}

// copyBytes and unpackBytes are the memory of a response until its client has read it: copyBytes for the buffers
// of the connection, and unpackBytes to unpack the text for a client that does not accept gzip.
const (
	copyBytes   = 40 << 10
	unpackBytes = 64 << 10
)

// maxRanges is the largest number of ranges that one request may ask for if the document has to be unpacked,
// because each range is unpacked from the beginning of the document. For more ranges the answer is the whole
// document.
const maxRanges = 8

// serve writes the document that write makes, or the cached one. The caller has set the
// headers that describe the document. Only built-in documents have a modification time; others
// only have an ETag.
func (h *Handler) serve(
	w http.ResponseWriter, r *http.Request, k key, modified time.Time, write func(io.Writer) error,
) {
	w.Header().Add("Vary", "Accept-Encoding")
	c := &content{unpack: !apiresponse.AcceptsGzip(r)}
	c.load = func() (*document, error) {
		d, err := h.cache.get(k, write)
		if errors.Is(err, errDoNotCache) {
			w.Header().Del("Etag")
			err = nil
		}
		if err == nil {
			err = hold(r.Context(), c.unpack, d, modified.IsZero())
		}
		return d, err
	}
	if !c.unpack {
		w.Header().Set("Content-Encoding", "gzip")
	} else if strings.Count(r.Header.Get("Range"), ",") >= maxRanges {
		r = r.Clone(r.Context())
		r.Header.Del("Range")
	}
	// http.ServeContent first asks for the size, so an error is found before anything is written.
	http.ServeContent(&errorReplacer{ResponseWriter: w, content: c, fail: func(err error) { h.fail(w, k.path, err) }}, r, "",
		modified, c)
}

// hold counts the memory of a response for its user, until the client has read it. If the document can change, its
// bytes count too, because a slow reader may be the only one that keeps an old document in memory.
func hold(ctx context.Context, unpack bool, d *document, changes bool) error {
	n := copyBytes
	if unpack {
		n += unpackBytes
	}
	if changes {
		n += len(d.compressed)
	}
	if !request.HoldMemory(ctx, n) {
		return errTooManyReaders
	}
	return nil
}

// errTooManyReaders means that too many responses wait until the user reads them.
var errTooManyReaders = errors.New("openapi: the user has too many responses that are not read")

func (h *Handler) fail(w http.ResponseWriter, what string, err error) {
	for _, name := range []string{"Etag", "Cache-Control", "Expires", "Last-Modified", "Content-Encoding", "Content-Type",
		"X-Content-Type-Options"} {
		w.Header().Del(name)
	}
	if errors.Is(err, ErrGone) {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if errors.Is(err, errTooManyReaders) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
		return
	}
	if errors.Is(err, errChanged) {
		w.Header().Set("Retry-After", "1")
	}
	h.log.Error("cannot serve an OpenAPI document", "document", what, "err", err)
	w.WriteHeader(http.StatusServiceUnavailable)
}
