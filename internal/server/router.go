package server

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/pprof"
	"sort"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/keelson-dev/keelson/internal/access/auth/serviceaccount"
	"github.com/keelson-dev/keelson/internal/api/crd"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/gateway/aggregator"
	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol"
	"github.com/keelson-dev/keelson/internal/gateway/peers"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
	"github.com/keelson-dev/keelson/internal/server/health"
	"github.com/keelson-dev/keelson/internal/server/snapshots"
	"github.com/keelson-dev/keelson/internal/server/zpages"
)

// router finds the handler of a path. It is not a http.ServeMux, because that cleans paths, and names of objects
// may contain what it would change.
type router struct {
	health        *health.Handler
	metrics, slis http.Handler
	discovery     *discovery.Handler
	openapi       http.Handler
	resources     *directory.Directory
	custom        *crd.Server // custom resources
	aggregator    *aggregator.Aggregator
	peers         *peers.Peers // nil: requests are not forwarded to other servers on the same store
	snapshots     http.Handler
	pages         *zpages.Handler
	fairness      *flowcontrol.Controller   // nil: API priority and fairness is switched off
	issuer        *serviceaccount.Discovery // nil: the issuer of tokens cannot be discovered
	debug         debugRoutes
}

// debugRoutes serve diagnostics.
type debugRoutes struct {
	profiling    bool
	setVerbosity func(int) error // nil where it cannot be set
	logs         http.Handler    // files of logs; nil: they are not served
}

func (t *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if isAPI(path) {
		t.serveAPI(w, r)
		return
	}
	switch {
	case path == "/" || path == "/index.html":
		t.serveIndex(w)
	case health.Serves(path):
		if strings.LastIndexByte(path, '/') == 0 { // kube-apiserver does not count the requests for single checks
			request.TrackerFrom(r.Context()).Serve(nil)
		}
		t.health.ServeHTTP(w, r)
	case path == "/version" || strings.HasPrefix(path, "/version/"):
		serveVersion(w, r, t.pages.Version)
	case path == "/metrics":
		t.metrics.ServeHTTP(w, r)
	case path == "/metrics/slis":
		t.slis.ServeHTTP(w, r)
	case path == "/openapi/v2":
		t.openapi.ServeHTTP(w, r)
	case path == "/openapi/v3" || strings.HasPrefix(path, "/openapi/v3/"):
		request.TrackerFrom(r.Context()).Serve(nil)
		t.openapi.ServeHTTP(w, r)
	case t.issuer != nil && t.issuer.Serves(path):
		t.issuer.ServeHTTP(w, r)
	case t.pages.Serves(path):
		t.pages.ServeHTTP(w, r)
	case t.fairness != nil && t.fairness.Serves(path):
		t.fairness.ServeHTTP(w, r)
	case path == snapshots.Path:
		t.snapshots.ServeHTTP(w, r)
	case t.debug.setVerbosity != nil && path == "/debug/flags/v":
		t.serveVerbosity(w, r)
	case t.debug.profiling && strings.HasPrefix(path, "/debug/pprof"):
		serveProfile(w, r)
	case t.debug.logs != nil && (path == "/logs" || strings.HasPrefix(path, "/logs/")):
		t.debug.logs.ServeHTTP(w, r)
	default:
		apiresponse.NotFoundPage(w)
	}
}

// newLogs returns a handler of the files below a directory.
func newLogs(dir string) http.Handler {
	files := http.StripPrefix("/logs/", http.FileServer(http.Dir(dir)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/logs" {
			http.Redirect(w, r, "/logs/", http.StatusMovedPermanently)
			return
		}
		files.ServeHTTP(w, r)
	})
}

// isAPI reports whether a path is /api or /apis, or below one of them.
func isAPI(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return strings.HasPrefix(path, "/") && (first == "api" || first == "apis")
}

// serveAPI serves /api and /apis. Paths up to the version are discovery, longer ones are resources. An unknown
// group gets the response of an unknown path.
func (t *router) serveAPI(w http.ResponseWriter, r *http.Request) {
	info := request.InfoFrom(r.Context())
	switch {
	case !info.BelowVersion():
		t.discovery.ServeHTTP(w, r)
	case strings.HasPrefix(info.Path, "/api/"):
		t.resources.ServeHTTP(w, r)
	case info.Group == "":
		apiresponse.NotFoundPage(w) // /apis//v1/...: the core group is not among the named ones
	default:
		t.serveResource(w, r, info)
	}
}

// forwarder returns what forwards a request to another server: to an extension API server, or to a peer. It returns nil for
// requests that this server answers: the router sees only these.
func (t *router) forwarder(r *http.Request) http.Handler {
	if !isAPI(r.URL.Path) {
		return nil
	}
	if extension := t.extension(r); extension != nil {
		return extension
	}
	return t.peer(r)
}

// peer returns what forwards a request for a resource that only another server on the same store serves.
func (t *router) peer(r *http.Request) http.Handler {
	info := request.InfoFrom(r.Context())
	if t.peers == nil || !info.BelowVersion() {
		return nil
	}
	found := t.peers.Find(r)
	if found == nil ||
		t.resources.Find(schema.GroupVersionResource{Group: info.Group, Version: info.Version, Resource: info.Resource}) != nil ||
		info.Group != "" && t.custom.Serves(info) { // a definition may have come just now
		return nil
	}
	return found
}

// extension returns the handler of a path that an extension API server serves, which is the document of one of its versions
// or below it. It returns nil for all other paths.
func (t *router) extension(r *http.Request) http.Handler {
	info := request.InfoFrom(r.Context())
	group, version := info.Group, info.Version
	if !info.BelowVersion() {
		parts := request.Segments(r.URL.Path)
		if len(parts) < 3 || parts[0] != "apis" {
			return nil
		}
		group, version = parts[1], parts[2]
	}
	if group == "" {
		return nil
	}
	return t.aggregator.Find(r.Context(), group, version)
}

// serveResource serves the paths below a version of a named group. A built-in resource takes precedence over a
// custom one.
func (t *router) serveResource(w http.ResponseWriter, r *http.Request, info *request.Info) {
	gvr := schema.GroupVersionResource{Group: info.Group, Version: info.Version, Resource: info.Resource}
	found := t.resources.Find(gvr)
	switch {
	case found != nil && found.Source == directory.BuiltIn:
		found.Handler.ServeHTTP(w, r)
	case t.custom.Serves(info):
		t.custom.ServeHTTP(w, r) // a definition may have come just now
	case t.resources.HasSource(info.Group, directory.BuiltIn):
		t.resources.ServeHTTP(w, r)
	default:
		apiresponse.NotFoundPage(w)
	}
}

// serveIndex lists the paths that are served.
func (t *router) serveIndex(w http.ResponseWriter) {
	paths := append(t.discovery.Paths(), t.health.Paths()...)
	paths = append(paths, "/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version")
	paths = append(paths, t.pages.Paths()...)
	if t.fairness != nil {
		paths = append(paths, t.fairness.Paths()...)
	}
	if t.issuer != nil {
		paths = append(paths, serviceaccount.ConfigurationPath, serviceaccount.KeysPath)
	}
	if t.debug.logs != nil {
		paths = append(paths, "/logs")
	}
	if t.debug.profiling {
		paths = append(paths, "/debug/pprof", "/debug/pprof/profile", "/debug/pprof/symbol", "/debug/pprof/trace")
	}
	sort.Strings(paths)
	writeJSON(w, struct {
		Paths []string `json:"paths"`
	}{paths})
}

func serveVersion(w http.ResponseWriter, r *http.Request, info apiversion.Info) {
	switch {
	case strings.TrimSuffix(r.URL.Path, "/") != "/version":
		apiresponse.Error(w, r, apierr.PathNotFound())
	case r.Method != http.MethodGet:
		apiresponse.Error(w, r, apierr.PathMethodNotAllowed())
	case !apiresponse.AcceptsAny(apiresponse.ParseAccept(r.Header.Get("Accept")), []string{apiresponse.JSON}):
		apiresponse.Error(w, r, discovery.NoRepresentation(apiresponse.JSON))
	default:
		writeJSON(w, info)
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", apiresponse.JSON)
	_, _ = w.Write(body) // the client may be gone
}

func serveProfile(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/debug/pprof":
		http.Redirect(w, r, "/debug/pprof/", http.StatusFound)
	case "/debug/pprof/profile":
		pprof.Profile(w, r)
	case "/debug/pprof/symbol":
		pprof.Symbol(w, r)
	case "/debug/pprof/trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}

// serveVerbosity sets the verbosity of the log to the number in the body.
func (t *router) serveVerbosity(w http.ResponseWriter, r *http.Request) {
	const longestNumber = 16
	answer := func(status int, text string) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text+"\n") // the client may be gone
	}
	if r.Method != http.MethodPut {
		answer(http.StatusNotAcceptable, "unsupported http method")
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, longestNumber))
	if err != nil {
		answer(http.StatusBadRequest, "error reading request body: "+err.Error())
		return
	}
	v, err := strconv.Atoi(strings.TrimSpace(string(body)))
	if err == nil {
		err = t.debug.setVerbosity(v)
	}
	if err != nil {
		answer(http.StatusBadRequest, "failed to set the verbosity: "+err.Error())
		return
	}
	answer(http.StatusOK, "successfully set klog.logging.verbosity to "+strconv.Itoa(v))
}
