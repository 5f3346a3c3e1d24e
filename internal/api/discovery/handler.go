package discovery

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	apidiscovery "k8s.io/api/apidiscovery/v2"

	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// Handler serves discovery requests.
type Handler struct {
	resources  *directory.Directory
	registered Registrations // nil if there are no APIServices
	address    string
	peers      Peers  // nil if there are none
	catchUp    func() // see SetCatchUp; nil if there are no custom resources
	metrics    *Metrics

	mu      sync.Mutex // guards the following fields
	changes *directory.Watcher
	// seen is the result of registered.Changes for which the documents were made. registrations has the
	// registrations at that time, by group.
	seen          int64
	registrations map[string][]Registration
	groups        map[string]*groupView
	current       *view
	merged        *merged // nil before the first request for it
}

// Peers are other servers on the same store, which may serve resources that this one does not.
type Peers interface {
	// Merge returns the groups of all servers; local are the groups of this one.
	Merge(local []apidiscovery.APIGroupDiscovery) []apidiscovery.APIGroupDiscovery
	// Changes returns a number that changes whenever the result of Merge does.
	Changes() int64
}

// merged is the aggregated document of this server and its peers.
type merged struct {
	local    *view // for which the document was made
	changes  int64 // result of Peers.Changes then
	document *document
}

// view has the documents about all groups. It is immutable.
type view struct {
	groups  map[string]*groupView
	ordered []*group // all but the core group

	versions, list, aggregatedCore, aggregated *document
}

// groupView has the documents about one group. It is immutable.
type groupView struct {
	group    *group
	document *document
	versions map[string]*document // only versions with resources
}

// New returns a handler for the resources in a directory and of other servers. registered may be nil. address is the
// host and port of the server in the document of /api.
func New(resources *directory.Directory, registered Registrations, address string) *Handler {
	return &Handler{
		resources: resources, registered: registered, address: address, changes: resources.Watch(),
		groups: map[string]*groupView{}, seen: -1, metrics: newMetrics(),
	}
}

// SetPeers sets the peers whose resources are added to the aggregated document of /apis. It is called before
// requests are served.
func (h *Handler) SetPeers(p Peers) { h.peers = p }

// SetCatchUp sets a function that waits until the directory has the custom resources of all definitions that clients can have read. It is
// called before a group or a version is not found, so that a client that has read that a definition is established finds its resource.
// SetCatchUp is called before requests are served.
func (h *Handler) SetCatchUp(f func()) { h.catchUp = f }

// Metrics returns the metrics of the handler.
func (h *Handler) Metrics() *Metrics { return h.metrics }

// view returns the documents for the current content of the directory. Changed groups are read by this function, not
// when they change, because thousands of definitions may change without a request in between.
func (h *Handler) view() *view {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := map[string]bool{}
	for _, gv := range h.changes.Take() {
		names[gv.Group] = true
	}
	h.readRegistrations(names)
	if len(names) == 0 && h.current != nil {
		return h.current
	}
	groups := maps.Clone(h.groups)
	for name := range names {
		if g := newGroup(h.resources, name, h.registrations[name]); g != nil {
			groups[name] = newGroupView(g)
		} else {
			delete(groups, name)
		}
	}
	h.groups, h.current = groups, newView(groups, h.address)
	return h.current
}

// readRegistrations reads the APIServices if they have changed, and adds to names the groups that are different now.
func (h *Handler) readRegistrations(names map[string]bool) {
	if h.registered == nil {
		return
	}
	changes := h.registered.Changes()
	if changes == h.seen {
		return
	}
	h.seen = changes
	now := map[string][]Registration{}
	for _, r := range h.registered.Registrations() {
		now[r.Group] = append(now[r.Group], r)
	}
	for group, registrations := range now {
		slices.SortFunc(registrations, func(a, b Registration) int { return cmp.Compare(a.Version, b.Version) })
		if !slices.Equal(registrations, h.registrations[group]) {
			names[group] = true
		}
	}
	for group := range h.registrations {
		if now[group] == nil {
			names[group] = true
		}
	}
	h.registrations = now
}

// ofAll returns the aggregated document of this server and its peers.
func (h *Handler) ofAll(v *view) *document {
	changes := h.peers.Changes()
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.merged; m != nil && m.local == v && m.changes == changes {
		h.metrics.hits.Inc()
		return m.document
	}
	h.metrics.misses.Inc()
	h.merged = &merged{local: v, changes: changes, document: mergedDocument(v.ordered, h.peers)}
	return h.merged.document
}

func newGroupView(g *group) *groupView {
	v := &groupView{group: g, document: groupDocument(g), versions: map[string]*document{}}
	for i := range g.versions {
		if version := &g.versions[i]; len(version.resources) > 0 {
			v.versions[version.name] = resourceDocument(g, version)
		}
	}
	return v
}

func newView(groups map[string]*groupView, address string) *view {
	v := &view{groups: groups}
	var core []*group
	for name, g := range groups {
		if name == "" {
			core = append(core, g.group)
		} else {
			v.ordered = append(v.ordered, g.group)
		}
	}
	sortGroups(v.ordered)
	v.list = groupListDocument(v.ordered)
	v.aggregated = aggregatedDocument(v.ordered)
	v.aggregatedCore = aggregatedDocument(core)
	v.versions = versionsDocument(core, address)
	return v
}

// Paths returns the paths of all documents, in no particular order.
func (h *Handler) Paths() []string {
	paths := []string{"/api", "/apis", "/apis/"}
	for name, g := range h.view().groups {
		root := "/apis/" + name
		if name == "" {
			root = "/api"
		} else {
			paths = append(paths, root)
		}
		for i := range g.group.versions {
			paths = append(paths, root+"/"+g.group.versions[i].name)
		}
	}
	return paths
}

// ServeHTTP serves /api, /apis, /apis/<group>, /api/<version> and /apis/<group>/<version>,
// with or without a slash at the end.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := h.view()
	parts := request.Segments(r.URL.Path)
	if parts[0] == "api" {
		core := v.groups[""]
		switch {
		case len(parts) == 1:
			h.serveStrict(w, r, v.versions, func(*apiresponse.MediaRange) *document { return v.aggregatedCore })
		case len(parts) == 2 && core != nil && core.versions[parts[1]] != nil:
			h.serveStrict(w, r, core.versions[parts[1]], nil)
		default:
			apiresponse.Error(w, r, apierr.PathNotFound())
		}
		return
	}
	if strings.HasPrefix(r.URL.Path, "/apis//") {
		apiresponse.NotFoundPage(w) // the name of a group is missing
		return
	}
	if len(parts) == 1 {
		h.serve(w, r, v.list, func(asked *apiresponse.MediaRange) *document {
			if h.peers == nil || asked.Params["profile"] == profileNoPeers {
				return v.aggregated
			}
			return h.ofAll(v)
		})
		return
	}
	g := v.groups[parts[1]]
	if h.catchUp != nil && !g.has(parts[2:]) {
		h.catchUp()
		g = h.view().groups[parts[1]]
	}
	switch {
	case g == nil:
		apiresponse.NotFoundPage(w)
	case len(parts) == 2:
		h.serve(w, r, g.document, nil)
	case g.versions[parts[2]] == nil && g.group.builtIn:
		apiresponse.Error(w, r, apierr.PathNotFound())
	case g.versions[parts[2]] == nil:
		apiresponse.NotFoundPage(w)
	case g.group.builtIn:
		h.serveStrict(w, r, g.versions[parts[2]], nil)
	default:
		h.serve(w, r, g.versions[parts[2]], nil)
	}
}

// has reports whether there is a group, and a version of it if path has one. The versions of built-in groups never change.
func (g *groupView) has(path []string) bool {
	return g != nil && (len(path) == 0 || g.group.builtIn || g.versions[path[0]] != nil)
}

// serveStrict is serve for the documents of built-in versions: it only allows GET, and its
// error for an Accept header that cannot be satisfied has another text, as in kube-apiserver.
func (h *Handler) serveStrict(
	w http.ResponseWriter, r *http.Request, d *document, aggregated func(*apiresponse.MediaRange) *document,
) {
	if r.Method != http.MethodGet {
		apiresponse.Error(w, r, apierr.PathMethodNotAllowed())
		return
	}
	if !apiresponse.AcceptsAny(apiresponse.ParseAccept(r.Header.Get("Accept")), apiresponse.MediaTypes()) {
		apiresponse.Error(w, r, NoRepresentation(apiresponse.MediaTypes()...))
		return
	}
	h.serve(w, r, d, aggregated)
}

// NoRepresentation returns the error for an Accept header on a path with fixed media types.
func NoRepresentation(types ...string) error {
	return apiresponse.NotAcceptable("406: Not Acceptable\n\nAvailable representations: "+strings.Join(types, ", "), true)
}

// profileNoPeers is the profile of a media type for the resources of this server only.
const profileNoPeers = "nopeer"

// serve writes the aggregated document if any media range accepts it, whatever its weight, otherwise the other
// document. aggregated returns the aggregated document for a media range; it is nil if there is none.
func (h *Handler) serve(
	w http.ResponseWriter, r *http.Request, d *document, aggregated func(*apiresponse.MediaRange) *document,
) {
	clauses := apiresponse.ParseAccept(r.Header.Get("Accept"))
	if aggregated != nil {
		for i := range clauses {
			if mediaType, ok := aggregatedType(&clauses[i]); ok {
				request.TrackerFrom(r.Context()).Serve(nil)
				if clauses[i].Params["profile"] == profileNoPeers {
					h.metrics.noPeers.Inc()
				}
				aggregated(&clauses[i]).serve(w, r, mediaType)
				return
			}
		}
	}
	mediaType, ok := apiresponse.Negotiate(clauses, apiresponse.MediaTypes())
	if !ok {
		apiresponse.Error(w, r, apiresponse.NotAcceptable(
			"only the following media types are accepted: "+strings.Join(apiresponse.MediaTypes(), ", "), false))
		return
	}
	d.serve(w, r, mediaType)
}

func aggregatedType(c *apiresponse.MediaRange) (string, bool) {
	if c.Params["g"] != "apidiscovery.k8s.io" || c.Params["v"] != "v2" || c.Params["as"] != typeAggregated.Kind {
		return "", false
	}
	for _, mediaType := range apiresponse.MediaTypes() {
		if c.Matches(mediaType) {
			return mediaType, true
		}
	}
	return "", false
}
