package openapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	openapiv3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// newHandler returns a handler that serves the documents that kube-apiserver serves by default, unless the options
// say otherwise.
func newHandler(t testing.TB, o Options) *Handler {
	t.Helper()
	if o.Enabled == nil {
		o.Enabled = servedByDefault
	}
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func servedByDefault(path string) bool {
	return !strings.Contains(path, "alpha") && !strings.Contains(path, "beta") &&
		path != "apis/internal.apiserver.k8s.io" && path != "apis/lifecycle.k8s.io"
}

// get sends a request with headers "Name: value".
func get(t testing.TB, h http.Handler, url string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("GET", url, nil)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func gunzip(t testing.TB, b []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// sums are the hashes of the documents of the API that is served here.
func sums(t testing.TB) map[string]string { return readSums(t, "testdata/sums.txt") }

func readSums(t testing.TB, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 {
			sums["/openapi/"+f[0]] = f[2]
		}
	}
	return sums
}

// TestDocuments: every document has the recorded bytes, plain and compressed, for the first request and for later
// ones.
func TestDocuments(t *testing.T) {
	compareSums(t, newHandler(t, Options{}), sums(t), 50)
}

// TestAllDocuments does the same with the documents of kube-apiserver with --runtime-config=api/all=true and the
// feature gates of kinds.
func TestAllDocuments(t *testing.T) {
	everything := func(path string) bool { // all but the documents that only earlier minor versions have
		return !slices.Contains([]string{
			"apis/certificates.k8s.io/v1alpha1", "apis/networking.k8s.io/v1beta1", "apis/storage.k8s.io/v1beta1"}, path)
	}
	compareSums(t, newHandler(t, Options{Enabled: everything}), readSums(t, "testdata/sums-all.txt"), 65)
}

// TestHiddenResources compares with the documents of kube-apiserver with
// --runtime-config=batch/v1/cronjobs=false,apps/v1=false.
func TestHiddenResources(t *testing.T) {
	h := newHandler(t, Options{
		Enabled: func(path string) bool {
			return servedByDefault(path) && path != "apis/apps/v1" && path != "apis/apps"
		},
		Hidden: map[string][]string{"apis/batch/v1": {"cronjobs"}},
	})
	if w := get(t, h, "/openapi/v3/apis/apps/v1"); w.Code != 404 {
		t.Errorf("a disabled document: %d", w.Code)
	}
	compareSums(t, h, readSums(t, "testdata/sums-hidden.txt"), 2)
}

func compareSums(t *testing.T, h *Handler, all map[string]string, count int) {
	t.Helper()
	if len(all) != count {
		t.Fatalf("%d documents", len(all))
	}
	for url, want := range all {
		for range 2 {
			w := get(t, h, url)
			sum := sha512.Sum512(w.Body.Bytes())
			if w.Code != 200 || hex.EncodeToString(sum[:]) != want {
				t.Errorf("%s: %d, other bytes", url, w.Code)
			}
			if got := w.Header().Get("Etag"); got != `"`+strings.ToUpper(want)+`"` {
				t.Errorf("%s: ETag %s", url, got)
			}
			z := get(t, h, url, "Accept-Encoding: gzip")
			if z.Header().Get("Content-Encoding") != "gzip" || !bytes.Equal(gunzip(t, z.Body.Bytes()), w.Body.Bytes()) {
				t.Errorf("%s: gzip differs", url)
			}
		}
	}
	if h.cache.size > h.cache.limit {
		t.Error("the cache holds more than its limit")
	}
}

func TestIndex(t *testing.T) {
	h := newHandler(t, Options{})
	w := get(t, h, "/openapi/v3", "Accept: text/html")
	if got := w.Header().Get("Content-Type"); w.Code != 200 || got != "text/plain; charset=utf-8" {
		t.Errorf("%d %s", w.Code, got)
	}
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &index); err != nil {
		t.Fatal(err)
	}
	want := sums(t)
	delete(want, "/openapi/v2")
	got := map[string]string{}
	for path, entry := range index.Paths {
		url, hash, ok := strings.Cut(entry.ServerRelativeURL, "?hash=")
		if !ok || url != "/openapi/v3/"+path {
			t.Errorf("%s: %s", path, entry.ServerRelativeURL)
		}
		got[url] = strings.ToLower(hash)
	}
	if !maps.Equal(got, want) {
		t.Error("the index is not of the documents")
	}
	if again := get(t, h, "/openapi/v3", "If-None-Match: "+w.Header().Get("Etag")); again.Code != 304 {
		t.Errorf("index known to the client: %d", again.Code)
	}
}

func TestHash(t *testing.T) {
	h := newHandler(t, Options{})
	url := "/openapi/v3/apis/batch/v1"
	hash := strings.ToUpper(sums(t)[url])
	w := get(t, h, url+"?hash="+hash)
	if w.Code != 200 || w.Header().Get("Cache-Control") != "public, immutable" || w.Header().Get("Expires") == "" {
		t.Errorf("right hash: %d %v", w.Code, w.Header())
	}
	w = get(t, h, url+"?hash=bad")
	if w.Code != 301 || w.Header().Get("Location") != url+"?hash="+hash || w.Body.Len() != 0 ||
		w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("wrong hash: %d %v %q", w.Code, w.Header(), w.Body)
	}
	w = get(t, h, url)
	if w.Header().Get("Cache-Control") != "" || w.Header().Get("Last-Modified") == "" ||
		!slices.Contains(w.Header().Values("Vary"), "Accept") {
		t.Errorf("no hash: %v", w.Header())
	}
}

func TestNotModified(t *testing.T) {
	h := newHandler(t, Options{})
	for url, sum := range sums(t) {
		w := get(t, h, url, `If-None-Match: "`+strings.ToUpper(sum)+`"`)
		if w.Code != 304 || w.Body.Len() != 0 {
			t.Errorf("%s: %d", url, w.Code)
		}
	}
	if len(h.cache.entries) != 0 {
		t.Error("documents were made to say that they have not changed")
	}
}

func TestStatus(t *testing.T) {
	h := newHandler(t, Options{})
	for _, test := range []struct {
		method, url, accept string
		code                int
		contentType, body   string // body "*" is any
	}{
		{"GET", "/openapi/v2", "text/html", 406, "", ""},
		{"GET", "/openapi/v3/api/v1", "text/html", 406, "", ""},
		{"GET", "/openapi/v2", "text/html, application/*;q=0.5", 200, "application/json", "*"},
		{"POST", "/openapi/v2", "", 200, "application/json", "*"},
		{"HEAD", "/openapi/v3/api", "", 200, "application/json", ""},
		{"GET", "/openapi/v3/none", "", 404, "", ""},
		{"GET", "/openapi/v3/apis/none/v1", "", 404, "", ""},
		{"GET", "/openapi/v3/", "", 404, "", ""},
		{"GET", "/openapi/v2/", "", 404, "text/plain; charset=utf-8", "404 page not found\n"},
		{"GET", "/openapi", "", 404, "text/plain; charset=utf-8", "404 page not found\n"},
		{"GET", "/openapi/v1", "", 404, "text/plain; charset=utf-8", "404 page not found\n"},
	} {
		r := httptest.NewRequest(test.method, test.url, nil)
		if test.accept != "" {
			r.Header.Set("Accept", test.accept)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != test.code || w.Header().Get("Content-Type") != test.contentType || test.body != "*" &&
			w.Body.String() != test.body {
			t.Errorf("%s %s, accepting %q: %d %q %.40q", test.method, test.url, test.accept, w.Code,
				w.Header().Get("Content-Type"), w.Body)
		}
	}
}

// TestProtobuf: a document that is encoded in batches must be equal to the encoding of the whole document.
func TestProtobuf(t *testing.T) {
	h := newHandler(t, Options{})
	for _, url := range slices.Sorted(maps.Keys(sums(t))) {
		text := get(t, h, url).Body.Bytes()
		var got, want proto.Message
		var err error
		accept := "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
		sent := "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
		if url == "/openapi/v2" {
			accept, sent = strings.ReplaceAll(accept, "v3", "v2"), strings.ReplaceAll(sent, "v3", "v2")
			got = &openapiv2.Document{}
			want, err = openapiv2.ParseDocument(text)
		} else {
			got = &openapiv3.Document{}
			want, err = openapiv3.ParseDocument(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		w := get(t, h, url, "Accept: "+accept)
		if w.Code != 200 || w.Header().Get("Content-Type") != sent {
			t.Errorf("%s: %d %s", url, w.Code, w.Header().Get("Content-Type"))
		}
		if err := proto.Unmarshal(w.Body.Bytes(), got); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if !proto.Equal(got, want) {
			t.Errorf("%s: not the message of the JSON", url)
		}
		z := get(t, h, url, "Accept: "+sent, "Accept-Encoding: gzip")
		if !bytes.Equal(gunzip(t, z.Body.Bytes()), w.Body.Bytes()) {
			t.Errorf("%s: gzip differs", url)
		}
	}
}

// widgets is a source of one group.
type widgets struct {
	etag string
	err  error
}

func (w *widgets) Documents() []Document {
	if w.etag == "" {
		return nil
	}
	return []Document{{Path: "apis/example.com/v1", ETag: w.etag}, {Path: "apis/apps/v1", ETag: "not served"}}
}

func (w *widgets) V3(_ context.Context, path string) ([]byte, string, error) {
	return fmt.Appendf(nil,
		`{"openapi":"3.0.0","info":{"title":"Kubernetes","version":"1.36"},"paths":{"/%s/":{}},`+
			`"components":{"schemas":{"com.example.v1.Widget":{"type":"object"}}}}`, path), w.etag, w.err
}

func (w *widgets) V2(context.Context, string) ([]byte, error) {
	return []byte(`{"paths": {"/apis/example.com/v1/": {}, "/version/": {"mine": true}},
		"definitions": {"com.example.v1.Widget": {"type": "object"}, "io.k8s.api.core.v1.Pod": {}}}`), w.err
}

func TestSources(t *testing.T) {
	s := &widgets{}
	h := newHandler(t, Options{Sources: []Source{s}, Logger: slog.New(slog.DiscardHandler)})
	const url = "/openapi/v3/apis/example.com/v1"
	if w := get(t, h, url); w.Code != 404 {
		t.Errorf("before it is there: %d", w.Code)
	}
	builtin := get(t, h, "/openapi/v2")
	s.etag = "one"
	if !strings.Contains(get(t, h, "/openapi/v3").Body.String(),
		`"apis/example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/example.com/v1?hash=one"}`) {
		t.Error("not in the index")
	}
	for _, accept := range []string{"application/json", v3Types[1].sent} {
		if w := get(t, h, url, "Accept: "+accept); w.Code != 200 || w.Header().Get("Etag") != `"one"` {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	}
	if w := get(t, h, "/openapi/v3/apis/apps/v1"); w.Header().Get("Etag") == `"not served"` {
		t.Error("a built-in document was replaced")
	}

	merged := get(t, h, "/openapi/v2")
	if merged.Header().Get("Etag") == builtin.Header().Get("Etag") {
		t.Error("other document, same ETag")
	}
	var before, after map[string]any
	if err := json.Unmarshal(builtin.Body.Bytes(), &before); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(merged.Body.Bytes(), &after); err != nil {
		t.Fatal(err)
	}
	before["paths"].(map[string]any)["/apis/example.com/v1/"] = map[string]any{}
	before["definitions"].(map[string]any)["com.example.v1.Widget"] = map[string]any{"type": "object"}
	if !reflect.DeepEqual(before, after) {
		t.Error("v2 is not the built-in document and the source's additions")
	}
	pb := get(t, h, "/openapi/v2", "Accept: "+v2Types[1].sent)
	message := &openapiv2.Document{}
	if err := proto.Unmarshal(pb.Body.Bytes(), message); err != nil ||
		len(message.Definitions.AdditionalProperties) != len(after["definitions"].(map[string]any)) {
		t.Errorf("protobuf of v2: %v", err)
	}

	s.etag = "two"
	if w := get(t, h, "/openapi/v2", "If-None-Match: "+merged.Header().Get("Etag")); w.Code != 200 {
		t.Errorf("changed document: %d", w.Code)
	}
	s.etag, s.err = "three", errors.New("away")
	for _, encoding := range []string{"gzip", "identity"} {
		w := get(t, h, url, "Accept-Encoding: "+encoding)
		if w.Code != 503 || w.Body.Len() != 0 || w.Header().Get("Etag") != "" {
			t.Errorf("source away: %d %q", w.Code, w.Body)
		}
	}
	for _, accept := range []string{v2Types[0].sent, v2Types[1].sent} {
		for _, encoding := range []string{"gzip", "identity"} {
			kept := len(h.cache.entries)
			w := get(t, h, "/openapi/v2", "Accept: "+accept, "Accept-Encoding: "+encoding)
			if w.Code != 200 || w.Body.Len() == 0 || w.Header().Get("Etag") != "" || len(h.cache.entries) != kept {
				t.Errorf("v2 without a source that is away: %d %v", w.Code, w.Header())
			}
		}
	}
	s.err = ErrGone
	if w := get(t, h, url); w.Code != 404 {
		t.Errorf("document gone: %d", w.Code)
	}
}

// TestRanges asks for parts of a document, forwards and backwards, as a client that does not accept gzip.
func TestRanges(t *testing.T) {
	h := newHandler(t, Options{})
	whole := get(t, h, "/openapi/v2").Body.Bytes()
	for _, part := range [][2]int{{0, 10}, {1 << 20, 1<<20 + 99_999}, {len(whole) - 7, len(whole) - 1}} {
		w := get(t, h, "/openapi/v2", fmt.Sprintf("Range: bytes=%d-%d", part[0], part[1]))
		if w.Code != http.StatusPartialContent || !bytes.Equal(w.Body.Bytes(), whole[part[0]:part[1]+1]) {
			t.Errorf("%v: %d, %d bytes", part, w.Code, w.Body.Len())
		}
	}
	w := get(t, h, "/openapi/v2", "Range: bytes=1000-1009,0-9")
	_, params, err := mime.ParseMediaType(w.Header().Get("Content-Type"))
	if err != nil || w.Code != http.StatusPartialContent {
		t.Fatalf("%d %v", w.Code, err)
	}
	parts := multipart.NewReader(w.Body, params["boundary"])
	for _, from := range []int{1000, 0} {
		part, err := parts.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(part); err != nil || !bytes.Equal(text, whole[from:from+10]) {
			t.Errorf("from %d: %q %v", from, text, err)
		}
	}
	many := "Range: bytes=2000000-2000000" + strings.Repeat(",0-0,2000000-2000000", maxRanges)
	if w := get(t, h, "/openapi/v2", many); w.Code != http.StatusOK || !bytes.Equal(w.Body.Bytes(), whole) {
		t.Errorf("many ranges: %d, %d bytes", w.Code, w.Body.Len())
	}
	r := httptest.NewRequest(http.MethodHead, "/openapi/v2", nil)
	head := httptest.NewRecorder()
	h.ServeHTTP(head, r)
	if got := head.Header().Get("Content-Length"); got != strconv.Itoa(len(whole)) || head.Body.Len() != 0 {
		t.Errorf("HEAD: length %s, %d bytes", got, head.Body.Len())
	}
}

// account is a response that counts the memory that its user holds, and refuses more than free bytes.
type account struct {
	*httptest.ResponseRecorder
	free, held int64
}

func (a *account) Hold(n int64) bool {
	if n > a.free {
		return false
	}
	a.free, a.held = a.free-n, a.held+n
	return true
}

func (a *account) Charge(n int64) { a.free, a.held = a.free-n, a.held+n }

func (a *account) ReleaseMemory() { a.free, a.held = a.free+a.held, 0 }

func (a *account) Keep(int64) bool { return true }

func (a *account) InitialEventsSent() {}

// TestReadersPay checks how much memory counts for each response of a user: for a built-in document the same few
// bytes for each reader, and for a document that may change also the bytes of its compressed text.
func TestReadersPay(t *testing.T) {
	s := &widgets{}
	h := newHandler(t, Options{Sources: []Source{s}})
	serve := func(url string, free int64) *account {
		w := &account{ResponseRecorder: httptest.NewRecorder(), free: free}
		r := httptest.NewRequest(http.MethodGet, url, nil)
		h.ServeHTTP(w, r.WithContext(request.WithInfo(r.Context(), &request.Info{Response: w})))
		return w
	}
	if w := serve("/openapi/v2", 1<<20); w.Code != http.StatusOK || w.held == 0 || w.held > 256<<10 {
		t.Errorf("built-in: %d, %d bytes", w.Code, w.held)
	}
	if w := serve("/openapi/v2", 1<<10); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" ||
		w.Header().Get("Etag") != "" || w.Body.Len() > 100 {
		t.Errorf("a user who holds too much: %d %v", w.Code, w.Header())
	}
	s.etag = "one"
	compressed := get(t, h, "/openapi/v2", "Accept-Encoding: gzip").Body.Len()
	if w := serve("/openapi/v2", 1<<20); w.Code != http.StatusOK || w.held < int64(compressed) {
		t.Errorf("of a source: %d, %d bytes", w.Code, w.held)
	}
}

// TestReadersShare has two readers of a document that is too large for the cache.
func TestReadersShare(t *testing.T) {
	h := newHandler(t, Options{CacheBytes: 1})
	made := 0
	write := func(out io.Writer) error {
		made++
		_, err := io.WriteString(out, "text")
		return err
	}
	first, err := h.cache.get(key{etag: "a"}, write)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := h.cache.get(key{etag: "a"}, write); err != nil || second != first || made != 1 {
		t.Errorf("made %d times, %v", made, err)
	}
	runtime.KeepAlive(first)
}

// TestEnabled: disabling a group removes its paths, but no definition that another group needs.
func TestEnabled(t *testing.T) {
	all := newHandler(t, Options{Enabled: func(string) bool { return true }})
	parts, err := all.readV2(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	paths, definitions := len(parts.paths), len(parts.definitions)
	all.dropDisabled(parts)
	if len(parts.paths) != paths || len(parts.definitions) != definitions {
		t.Errorf("%d paths and %d definitions are unused", paths-len(parts.paths), definitions-len(parts.definitions))
	}

	h := newHandler(t, Options{Enabled: func(path string) bool { return path != "apis/batch/v1" }})
	if w := get(t, h, "/openapi/v3/apis/batch/v1"); w.Code != 404 {
		t.Errorf("disabled document: %d", w.Code)
	}
	if strings.Contains(get(t, h, "/openapi/v3").Body.String(), "apis/batch/v1") {
		t.Error("a disabled document is in the index")
	}
	text := get(t, h, "/openapi/v2").Body.String()
	if strings.Contains(text, "/apis/batch/v1/") || strings.Contains(text, `"io.k8s.api.batch.v1.CronJob":`) {
		t.Error("a disabled group is in v2")
	}
	if !strings.Contains(text, `"/apis/batch/"`) || !strings.Contains(text, `"io.k8s.api.core.v1.PodTemplateSpec":`) {
		t.Error("v2 lacks what is enabled")
	}
}

func TestCacheBound(t *testing.T) {
	h := newHandler(t, Options{CacheBytes: 50_000})
	for url := range sums(t) {
		get(t, h, url, "Accept-Encoding: gzip")
	}
	size := 0
	for _, text := range h.cache.entries {
		size += len(text.compressed)
	}
	if size != h.cache.size || size > 50_000 || len(h.cache.order) != len(h.cache.entries) {
		t.Errorf("%d bytes, counted as %d, in %d of %d entries", size, h.cache.size, len(h.cache.order), len(h.cache.entries))
	}
}

func BenchmarkFirst(b *testing.B) {
	for _, test := range []struct{ name, url, accept, encoding string }{
		{"index", "/openapi/v3", "*/*", "gzip"},
		{"v3 pods json", "/openapi/v3/api/v1", "application/json", "identity"},
		{"v3 pods json gzip", "/openapi/v3/api/v1", "application/json", "gzip"},
		{"v3 pods protobuf gzip", "/openapi/v3/api/v1", v3Types[1].sent, "gzip"},
		{"v3 leases json gzip", "/openapi/v3/apis/coordination.k8s.io/v1", "application/json", "gzip"},
		{"v2 json gzip", "/openapi/v2", "application/json", "gzip"},
		{"v2 protobuf gzip", "/openapi/v2", v2Types[1].sent, "gzip"},
	} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h := newHandler(b, Options{})
				get(b, h, test.url, "Accept: "+test.accept, "Accept-Encoding: "+test.encoding)
			}
		})
	}
}

// BenchmarkKept measures the memory that is used when every document was served.
func BenchmarkKept(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var h *Handler
	for b.Loop() {
		h = newHandler(b, Options{})
		for url := range sums(b) {
			get(b, h, url, "Accept-Encoding: gzip")
		}
	}
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc)-float64(before.HeapAlloc), "heap-B")
	runtime.KeepAlive(h)
}

// many is a source of many groups.
type many struct {
	widgets
	documents []Document
}

func (m *many) Documents() []Document { return m.documents }

func BenchmarkManyGroups(b *testing.B) {
	s := &many{widgets: widgets{etag: strings.Repeat("0123456789ABCDEF", 8)}}
	for i := range 5000 {
		s.documents = append(s.documents, Document{Path: fmt.Sprintf("apis/g%d.example.com/v1", i), ETag: s.etag})
	}
	h := newHandler(b, Options{Sources: []Source{s}})
	etag := get(b, h, "/openapi/v2").Header().Get("Etag")
	for _, url := range []string{"/openapi/v3", "/openapi/v3/apis/g4999.example.com/v1", "/openapi/v2"} {
		b.Run(url, func(b *testing.B) {
			for b.Loop() {
				get(b, h, url, "If-None-Match: "+etag, "Accept-Encoding: gzip")
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		newHandler(b, Options{})
	}
}
