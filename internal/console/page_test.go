package console

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// packed returns a file with content in compressed form.
func packed(t *testing.T, content string) *fstest.MapFile {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return &fstest.MapFile{Data: b.Bytes()}
}

const (
	script = "console.log('a')"
	hash   = "app-ABCDEFG2.js"
)

func testPage(t *testing.T, o Options) *Handler {
	t.Helper()
	if o.Now == nil {
		o.Now = time.Now
	}
	return newHandler(o, fstest.MapFS{
		"index.html.gz": packed(t, `<meta name="csp-nonce" content="{{nonce}}">`), hash + ".gz": packed(t, script),
		"licences.txt.gz": packed(t, "MIT"), "my-component.css.gz": packed(t, "a{}"), "x-0123456789abcdef.css.gz": packed(t, "b{}"),
	})
}

// get sends a request to a handler. headers are names and values.
func get(h http.Handler, method, target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestFiles(t *testing.T) {
	h := testPage(t, Options{})
	const year = "public, max-age=31536000, immutable"
	for _, c := range []struct {
		method, path string
		code         int
		kind, cache  string
		body         string
	}{
		{"GET", "/console/" + hash, 200, "text/javascript; charset=utf-8", year, script},
		{"GET", "/console/x-0123456789abcdef.css", 200, "text/css; charset=utf-8", year, "b{}"},
		{"GET", "/console/my-component.css", 200, "text/css; charset=utf-8", "no-cache", "a{}"},
		{"GET", "/console/licences.txt", 200, "text/plain; charset=utf-8", "no-cache", "MIT"},
		{"HEAD", "/console/licences.txt", 200, "text/plain; charset=utf-8", "no-cache", ""},
		{"GET", "/console", 302, "", "no-store", ""},
		{"GET", "/console/pods", 404, "application/json", "no-store", ""},
		{"GET", "/console/" + hash + ".gz", 404, "application/json", "no-store", ""},
		{"GET", "/console/../etc/passwd", 404, "application/json", "no-store", ""},
		{"GET", "/console/dir/", 404, "application/json", "no-store", ""},
		{"POST", "/console/" + hash, 405, "application/json", "no-store", ""},
		{"POST", "/console/", 405, "application/json", "no-store", ""},
		{"DELETE", "/console/config.json", 405, "application/json", "no-store", ""},
		{"GET", "/console/oidc/token", 405, "application/json", "no-store", ""},
	} {
		w := get(h, c.method, c.path)
		header := w.Header()
		if w.Code != c.code || header.Get("Content-Type") != c.kind || header.Get("Cache-Control") != c.cache ||
			c.code == 200 && w.Body.String() != c.body {
			t.Errorf("%s %s: %d %v %q", c.method, c.path, w.Code, header, w.Body)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
				"font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
				"require-trusted-types-for 'script'; trusted-types 'none'",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY",
		} {
			if got := header.Get(name); got != want {
				t.Errorf("%s %s: %s: %q", c.method, c.path, name, got)
			}
		}
		if c.code >= 400 {
			var s metav1.Status
			if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || s.Kind != "Status" || int(s.Code) != c.code || s.Message == "" {
				t.Errorf("%s %s: %s", c.method, c.path, w.Body)
			}
		}
	}
	if w := get(h, "GET", "/console"); w.Header().Get("Location") != "/console/" {
		t.Errorf("/console leads to %q", w.Header().Get("Location"))
	}
}

func TestCompressedFiles(t *testing.T) {
	h := testPage(t, Options{})
	plain := get(h, "GET", "/console/"+hash)
	zipped := get(h, "GET", "/console/"+hash, "Accept-Encoding", "br, gzip")
	z, err := gzip.NewReader(zipped.Body)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(z)
	if zipped.Header().Get("Content-Encoding") != "gzip" || plain.Header().Get("Content-Encoding") != "" || err != nil ||
		string(content) != script || zipped.Header().Get("Content-Length") == "" {
		t.Errorf("%v %v %q %v", plain.Header(), zipped.Header(), content, err)
	}
	if refused := get(h, "GET", "/console/"+hash, "Accept-Encoding", "gzip;q=0"); refused.Body.String() != script {
		t.Errorf("a client without gzip gets %v", refused.Header())
	}
	one, two := plain.Header().Get("ETag"), zipped.Header().Get("ETag")
	if one == two || !strings.HasPrefix(one, `"`) {
		t.Errorf("the tags are %s and %s", one, two)
	}
	for tag, code := range map[string]int{one: 304, `"x", W/` + one: 304, "*": 304, two: 200, `"x"`: 200, "": 200} {
		if w := get(h, "GET", "/console/"+hash, "If-None-Match", tag); w.Code != code || code == 304 && w.Body.Len() > 0 {
			t.Errorf("If-None-Match: %s: %d", tag, w.Code)
		}
	}
}

func TestNonces(t *testing.T) {
	h := testPage(t, Options{})
	seen := map[string]bool{}
	for _, path := range []string{"/console/", "/console/", "/console/?code=1", "/console/index.html"} {
		w := get(h, "GET", path, "Accept-Encoding", "gzip")
		page := regexp.MustCompile(`^<meta name="csp-nonce" content="([A-Za-z0-9_-]{22})">$`).FindStringSubmatch(w.Body.String())
		if page == nil {
			t.Fatalf("%s: %s", path, w.Body)
		}
		if !strings.Contains(w.Header().Get("Content-Security-Policy"), "style-src 'self' 'nonce-"+page[1]+"'; ") || seen[page[1]] ||
			w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Content-Type") != "text/html; charset=utf-8" ||
			w.Header().Get("ETag") != "" || strings.Contains(w.Header().Get("Content-Security-Policy"), "unsafe") {
			t.Errorf("%s: %v", path, w.Header())
		}
		seen[page[1]] = true
	}
}

func TestConfig(t *testing.T) {
	for want, o := range map[string]Options{
		`{"product":"keelson","version":"1.2.3","kubernetes":"v1.37.2","proxied":false,"oidc":null}`:                 {Version: "1.2.3", Kubernetes: "v1.37.2"},
		`{"product":"keelson","version":"1","kubernetes":"","proxied":true,"server":"https://one:6443","oidc":null}`: {Version: "1", Server: "https://one:6443"},
	} {
		w := get(testPage(t, o), "GET", "/console/config.json")
		if w.Body.String() != want || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%v %s", w.Header(), w.Body)
		}
	}
}

func TestServes(t *testing.T) {
	for path, want := range map[string]bool{
		"/console/": true, "/console": true, "/console/x": true, "/": false, "/consoles": false, "/api": false, "/consol": false,
		"/api/console/": false,
	} {
		if got := Serves(path); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
}

// TestResponsesShareTheirBytes holds that a file is in memory once, however many requests for it wait for their clients.
func TestResponsesShareTheirBytes(t *testing.T) {
	h := testPage(t, Options{})
	for _, encoding := range []string{"gzip", "identity"} {
		first, second := &keeper{ResponseRecorder: httptest.NewRecorder()}, &keeper{ResponseRecorder: httptest.NewRecorder()}
		for _, w := range []*keeper{first, second} {
			r := httptest.NewRequest(http.MethodGet, Root+hash, nil)
			r.Header.Set("Accept-Encoding", encoding)
			h.ServeHTTP(w, r)
		}
		if len(first.written) == 0 || &first.written[0] != &second.written[0] {
			t.Errorf("%s: each response has bytes of its own", encoding)
		}
	}
}

// keeper is a ResponseWriter that keeps the last written slice itself, not a copy of it.
type keeper struct {
	*httptest.ResponseRecorder
	written []byte
}

func (k *keeper) Write(b []byte) (int, error) {
	k.written = b
	return k.ResponseRecorder.Write(b)
}

// TestEmbeddedFiles checks the files that the build has written. The page must contain the place for the nonce,
// all files that it loads must exist, and its policy must forbid nothing in it.
func TestEmbeddedFiles(t *testing.T) {
	index, err := fs.ReadFile(embedded(), "index.html.gz")
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(index))
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(z)
	if err != nil || !bytes.Contains(page, []byte(`<meta name="csp-nonce" content="{{nonce}}">`)) {
		t.Errorf("index.html has no place for the nonce: %v", err)
	}
	h := New(Options{Now: time.Now})
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"#:]+)"`).FindAllSubmatch(page, -1) {
		w := get(h, "GET", Root+string(m[1]))
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") == "application/octet-stream" ||
			!strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("index.html names %s, which is answered %d %v", m[1], w.Code, w.Header())
		}
	}
	if bytes.Contains(page, []byte("<script>")) || bytes.Contains(page, []byte(" style=")) || bytes.Contains(page, []byte("<style")) {
		t.Error("index.html has an inline script or style, which its policy forbids")
	}
}
