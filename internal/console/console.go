// Package console serves the web console, a page with which a person sees and changes the objects of an API server in a
// browser. The page is a program in TypeScript (folder app); the files that are built from it are embedded in compressed form.
//
// A Handler serves the page below /console/. It is a part of the server, and also a part of a Proxy. A Proxy is
// the command `keelson console`: it serves the page on the loopback interface for any API server, and forwards the
// page's requests with the credentials of a kubeconfig.
//
// The files: page.go has the files of the page and their headers; login.go logs people in at an issuer of OpenID Connect, and
// places.go limits how many at a time; guard.go checks the requests to a Proxy, session.go has its links and cookies, and
// forward.go what it forwards.
package console

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Root is the path of the page. All paths of the console are below it.
	Root = "/console/"

	configPath = Root + "config.json"
	tokenPath  = Root + "oidc/token"
)

// Serves reports whether a path is one of the console.
func Serves(path string) bool { return path+"/" == Root || strings.HasPrefix(path, Root) }

// Options are the information for the page, and the configuration of logins.
type Options struct {
	Version    string // of the program
	Kubernetes string // the version whose API the server has; a Proxy leaves it empty
	// Server is the URL of the API server behind a Proxy. It is empty if the page is served by the API server
	// itself.
	Server string
	// Issuers returns the issuers at which people can log in, the preferred one first. It may be nil.
	Issuers func() []Issuer
	// Log gets a line if an issuer cannot be used. Nil drops it.
	Log *slog.Logger
	Now func() time.Time
}

// Handler serves the page, and logs people in. It is an http.Handler for paths for which Serves returns true. Its
// requests need no credentials. It reads no file before the first request.
type Handler struct {
	o      Options
	files  fs.FS    // each file of the page as NAME.gz
	login  *login   // nil if no issuer is configured
	loaded sync.Map // maps names of files to *file
}

// New returns a handler.
func New(o Options) *Handler { return newHandler(o, embedded()) }

func newHandler(o Options, files fs.FS) *Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	h := &Handler{o: o, files: files}
	if o.Issuers != nil {
		h.login = newLogin(o)
	}
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	if r.URL.Path == tokenPath {
		if allow(w, r, http.MethodPost) {
			h.serveToken(w, r)
		}
		return
	}
	if !allow(w, r, http.MethodGet, http.MethodHead) {
		return
	}
	switch name, below := strings.CutPrefix(r.URL.Path, Root); {
	case !below:
		w.Header().Set("Location", Root)
		w.WriteHeader(http.StatusFound)
	case name == "" || name == indexName:
		h.serveIndex(w, r)
	case r.URL.Path == configPath:
		h.serveConfig(w, r)
	default:
		h.serveFile(w, r, name)
	}
}

// configuration is the information that the page gets before a login. Everybody may read it.
type configuration struct {
	Product    string     `json:"product"`
	Version    string     `json:"version"`
	Kubernetes string     `json:"kubernetes"`
	Proxied    bool       `json:"proxied"`
	Server     string     `json:"server,omitempty"`
	OIDC       *loginPage `json:"oidc"`
}

func (h *Handler) serveConfig(w http.ResponseWriter, r *http.Request) {
	c := configuration{
		Product: "keelson", Version: h.o.Version, Kubernetes: h.o.Kubernetes, Proxied: h.o.Server != "", Server: h.o.Server,
	}
	if h.login != nil {
		c.OIDC = h.login.page(r.Context())
	}
	writeJSON(w, http.StatusOK, c)
}

// writeJSON answers with a value as JSON.
func writeJSON(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client may be gone; a HEAD gets no body
}

// refuse answers with a Status.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, format string, args ...any) {
	writeJSON(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: fmt.Sprintf(format, args...),
	})
}

// allow reports whether a request has one of the methods. It answers 405 to others.
func allow(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	for _, m := range methods {
		if r.Method == m {
			return true
		}
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	refuse(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "%s does not allow %s", r.URL.Path, r.Method)
	return false
}
