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
	"github.com/keelson-dev/keelson/internal/server/members"
	"github.com/keelson-dev/keelson/internal/server/snapshots"
	"github.com/keelson-dev/keelson/internal/server/zpages"
)

// router finds the handler of a path. It is not an http.ServeMux, because that cleans paths and would change some
// names of objects.
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
	members       http.Handler // nil: the server is not one of a cluster of servers
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

func (ro *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if isAPI(path) {
		ro.serveAPI(w, r)
		return
	}
	switch {
	case path == "/" || path == "/index.html":
		ro.serveIndex(w)
	case health.Serves(path):
		if strings.LastIndexByte(path, '/') == 0 { // kube-apiserver does not count the requests for single checks
			request.TrackerFrom(r.Context()).Serve(nil)
		}
		ro.health.ServeHTTP(w, r)
	case path == "/version" || strings.HasPrefix(path, "/version/"):
		serveVersion(w, r, ro.pages.Version)
	case path == "/metrics":
		ro.metrics.ServeHTTP(w, r)
	case path == "/metrics/slis":
		ro.slis.ServeHTTP(w, r)
	case path == "/openapi/v2":
		ro.openapi.ServeHTTP(w, r)
	case path == "/openapi/v3" || strings.HasPrefix(path, "/openapi/v3/"):
		request.TrackerFrom(r.Context()).Serve(nil)
		ro.openapi.ServeHTTP(w, r)
	case ro.issuer != nil && ro.issuer.Serves(path):
		ro.issuer.ServeHTTP(w, r)
	case ro.pages.Serves(path):
		ro.pages.ServeHTTP(w, r)
	case ro.fairness != nil && ro.fairness.Serves(path):
		ro.fairness.ServeHTTP(w, r)
	case path == snapshots.Path:
		ro.snapshots.ServeHTTP(w, r)
	case ro.members != nil && members.Serves(path):
		ro.members.ServeHTTP(w, r)
	case ro.debug.setVerbosity != nil && path == "/debug/flags/v":
		ro.serveVerbosity(w, r)
	case ro.debug.profiling && strings.HasPrefix(path, "/debug/pprof"):
		serveProfile(w, r)
	case ro.debug.logs != nil && (path == "/logs" || strings.HasPrefix(path, "/logs/")):
		ro.debug.logs.ServeHTTP(w, r)
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
func (ro *router) serveAPI(w http.ResponseWriter, r *http.Request) {
	info := request.InfoFrom(r.Context())
	switch {
	case !info.BelowVersion():
		ro.discovery.ServeHTTP(w, r)
	case strings.HasPrefix(info.Path, "/api/"):
		ro.resources.ServeHTTP(w, r)
	case info.Group == "":
		apiresponse.NotFoundPage(w) // /apis//v1/...: the core group cannot be reached as a named group
	default:
		ro.serveResource(w, r, info)
	}
}

// forwarder returns the handler that forwards a request to an extension API server or to a peer. It returns nil if
// this server answers the request. Only those requests reach the router.
func (ro *router) forwarder(r *http.Request) http.Handler {
	if !isAPI(r.URL.Path) {
		return nil
	}
	if extension := ro.extension(r); extension != nil {
		return extension
	}
	return ro.peer(r)
}

// peer returns the handler that forwards a request for a resource that only another server on the same store
// serves, or nil.
func (ro *router) peer(r *http.Request) http.Handler {
	info := request.InfoFrom(r.Context())
	if ro.peers == nil || !info.BelowVersion() {
		return nil
	}
	found := ro.peers.Find(r)
	if found == nil ||
		ro.resources.Find(schema.GroupVersionResource{Group: info.Group, Version: info.Version, Resource: info.Resource}) != nil ||
		info.Group != "" && ro.custom.Serves(info) { // the definition may be a very new one
		return nil
	}
	return found
}

// extension returns the handler that forwards a request to an extension API server: one for the discovery document
// of a version that such a server serves, or for a path below it. It returns nil for all other paths.
func (ro *router) extension(r *http.Request) http.Handler {
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
	return ro.aggregator.Find(r.Context(), group, version)
}

// serveResource serves the paths below a version of a named group. A built-in resource takes precedence over a
// custom one.
func (ro *router) serveResource(w http.ResponseWriter, r *http.Request, info *request.Info) {
	gvr := schema.GroupVersionResource{Group: info.Group, Version: info.Version, Resource: info.Resource}
	found := ro.resources.Find(gvr)
	switch {
	case found != nil && found.Source == directory.BuiltIn:
		found.Handler.ServeHTTP(w, r)
	case ro.custom.Serves(info):
		ro.custom.ServeHTTP(w, r) // the definition may be a very new one
	case ro.resources.HasSource(info.Group, directory.BuiltIn):
		ro.resources.ServeHTTP(w, r)
	default:
		apiresponse.NotFoundPage(w)
	}
}

// serveIndex lists the paths that are served.
func (ro *router) serveIndex(w http.ResponseWriter) {
	paths := append(ro.discovery.Paths(), ro.health.Paths()...)
	paths = append(paths, "/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version")
	paths = append(paths, ro.pages.Paths()...)
	if ro.fairness != nil {
		paths = append(paths, ro.fairness.Paths()...)
	}
	if ro.issuer != nil {
		paths = append(paths, serviceaccount.ConfigurationPath, serviceaccount.KeysPath)
	}
	if ro.debug.logs != nil {
		paths = append(paths, "/logs")
	}
	if ro.debug.profiling {
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
func (ro *router) serveVerbosity(w http.ResponseWriter, r *http.Request) {
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
		err = ro.debug.setVerbosity(v)
	}
	if err != nil {
		answer(http.StatusBadRequest, "failed to set the verbosity: "+err.Error())
		return
	}
	answer(http.StatusOK, "successfully set klog.logging.verbosity to "+strconv.Itoa(v))
}
