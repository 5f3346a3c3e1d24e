package console

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// dist has the files of the page as the build has written them: x.gz is the file x.
//
//go:embed dist/*.gz
var dist embed.FS

func embedded() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the name is valid
	}
	return files
}

const (
	indexName = "index.html"
	// noncePlace is the text in index.html that the nonce of a response replaces.
	noncePlace = "{{nonce}}"
	nonceBytes = 16
)

// policy returns the Content-Security-Policy. style is another source of style sheets, or "". The page may connect
// only to its own server and has no inline scripts. It cannot turn text into HTML or code (trusted types).
func policy(style string) string {
	if style != "" {
		style = " " + style
	}
	return "default-src 'none'; script-src 'self'; style-src 'self'" + style + "; img-src 'self' data:; font-src 'self'; " +
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'"
}

// setHeaders sets the headers of all responses of the console. Files that may be kept in a cache replace Cache-Control.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy(""))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-store")
}

// mediaType returns the media type of a file.
func mediaType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".txt":
		return "text/plain; charset=utf-8"
	case ".json", ".map":
		return "application/json"
	case ".svg":
		return "image/svg+xml"
	case ".png":
		return "image/png"
	case ".woff2":
		return "font/woff2"
	}
	return "application/octet-stream"
}

// hashed matches file names that the build has given a hash of the content: 8 capital letters and digits, or
// hexadecimal digits. The content for such a name never changes.
var hashed = regexp.MustCompile(`-([A-Z0-9]{8}|[0-9a-f]{8,64})\.[a-z0-9]+$`)

// serveIndex serves the page. Each response has a new nonce, which allows the style sheets that the page creates.
func (h *Handler) serveIndex(w http.ResponseWriter, r *http.Request) {
	f := h.load(w, r, indexName)
	if f == nil {
		return
	}
	content, err := f.unzipped()
	if err != nil {
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "%s: %v", indexName, err)
		return
	}
	random := make([]byte, nonceBytes)
	_, _ = rand.Read(random) // it never fails
	nonce := base64.RawURLEncoding.EncodeToString(random)
	content = bytes.ReplaceAll(content, []byte(noncePlace), []byte(nonce))
	header := w.Header()
	header.Set("Content-Security-Policy", policy("'nonce-"+nonce+"'"))
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(len(content)))
	_, _ = w.Write(content) // the client may be gone
}

// file is a file of the page. All responses share its bytes, so clients that request it and do not read use little
// memory.
type file struct {
	zipped   []byte
	tag      string                 // a hash of the content
	unzipped func() ([]byte, error) // for clients that do not accept gzip; unpacked once
}

// load returns a file of the page. It reads the file at the first request. If there is no such file, it writes the
// response and returns nil.
func (h *Handler) load(w http.ResponseWriter, r *http.Request, name string) *file {
	if f, ok := h.loaded.Load(name); ok {
		return f.(*file)
	}
	if !fs.ValidPath(name) {
		notFound(w, r)
		return nil
	}
	zipped, err := fs.ReadFile(h.files, name+".gz")
	if err != nil {
		notFound(w, r)
		return nil
	}
	sum := sha256.Sum256(zipped)
	f := &file{zipped: zipped, tag: hex.EncodeToString(sum[:nonceBytes]), unzipped: sync.OnceValues(func() ([]byte, error) {
		z, err := gzip.NewReader(bytes.NewReader(zipped))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(z)
	})}
	loaded, _ := h.loaded.LoadOrStore(name, f)
	return loaded.(*file)
}

// serveFile serves a file of the page other than the index.
func (h *Handler) serveFile(w http.ResponseWriter, r *http.Request, name string) {
	f := h.load(w, r, name)
	if f == nil {
		return
	}
	zips := apiresponse.AcceptsGzip(r)
	tag := f.tag
	if zips {
		tag += "-gzip"
	}
	tag = `"` + tag + `"`
	header := w.Header()
	header.Set("ETag", tag)
	header.Set("Vary", "Accept-Encoding")
	header.Set("Cache-Control", "no-cache")
	if hashed.MatchString(name) {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if matches(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	content := f.zipped
	if zips {
		header.Set("Content-Encoding", "gzip")
	} else {
		var err error
		if content, err = f.unzipped(); err != nil {
			refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "%s: %v", name, err)
			return
		}
	}
	header.Set("Content-Type", mediaType(name))
	header.Set("Content-Length", strconv.Itoa(len(content)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(content) // the client may be gone
	}
}

// matches reports whether the header If-None-Match has a tag.
func matches(header, tag string) bool {
	for t := range strings.SplitSeq(header, ",") {
		if t = strings.TrimSpace(t); t == "*" || strings.TrimPrefix(t, "W/") == tag {
			return true
		}
	}
	return false
}

func notFound(w http.ResponseWriter, r *http.Request) {
	refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the console has no file %s", r.URL.Path)
}
