package discovery

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/apiresponse"
)

// Handler answers discovery requests. Groups may be added and removed while it
// serves.
type Handler struct {
	address string

	mu   sync.Mutex // serializes changes of view
	view atomic.Pointer[view]
}

// view is one immutable state of the groups and the documents about it.
type view struct {
	groups   map[string]*groupView
	ordered  []*Group // all but the core group
	versions *document

	list, aggregatedCore, aggregated *document
}

type groupView struct {
	group     *Group
	document  *document
	versions  map[string]*document
	resources map[string]map[string]*metav1.APIResource // by version and name
}

// New returns a handler for the groups. address is the host and port that /api
// says the server has.
func New(groups []*Group, address string) *Handler {
	h := &Handler{address: address}
	views := make(map[string]*groupView, len(groups))
	for _, g := range groups {
		views[g.Name] = newGroupView(g)
	}
	h.view.Store(newView(views, address))
	return h
}

// Set adds a group or replaces the one of its name. The group is not changed
// afterwards.
func (h *Handler) Set(g *Group) {
	h.change(func(m map[string]*groupView) { m[g.Name] = newGroupView(g) })
}

// Remove takes a group away.
func (h *Handler) Remove(name string) { h.change(func(m map[string]*groupView) { delete(m, name) }) }

func (h *Handler) change(f func(map[string]*groupView)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.view.Load().groups
	groups := make(map[string]*groupView, len(old)+1)
	for name, g := range old {
		groups[name] = g
	}
	f(groups)
	h.view.Store(newView(groups, h.address))
}

func newGroupView(g *Group) *groupView {
	v := &groupView{group: g, document: groupDocument(g), versions: map[string]*document{}, resources: map[string]map[string]*metav1.APIResource{}}
	for i := range g.Versions {
		version := &g.Versions[i]
		if version.Announced {
			continue
		}
		v.versions[version.Name] = resourceDocument(g, version)
		byName := make(map[string]*metav1.APIResource, len(version.Resources))
		for j := range version.Resources {
			byName[version.Resources[j].Name] = &version.Resources[j]
		}
		v.resources[version.Name] = byName
	}
	return v
}

func newView(groups map[string]*groupView, address string) *view {
	v := &view{groups: groups}
	var core []*Group
	for name, g := range groups {
		if name == "" {
			core = append(core, g.group)
			continue
		}
		v.ordered = append(v.ordered, g.group)
	}
	sortGroups(v.ordered)
	v.list = groupListDocument(v.ordered)
	v.aggregated = aggregatedDocument(v.ordered)
	v.aggregatedCore = aggregatedDocument(core)
	var coreGroup *Group
	if core != nil {
		coreGroup = core[0]
	}
	v.versions = versionsDocument(coreGroup, address)
	return v
}

// HasGroup says whether a group of that name is served.
func (h *Handler) HasGroup(name string) bool { return h.view.Load().groups[name] != nil }

// HasResource says whether the group and version serve a resource, or one of its
// subresources where name is of the form resource/subresource.
func (h *Handler) HasResource(group, version, name string) bool {
	g := h.view.Load().groups[group]
	return g != nil && g.resources[version][name] != nil
}

// Paths lists the paths that discovery answers, in no order.
func (h *Handler) Paths() []string {
	paths := []string{"/api", "/apis", "/apis/"}
	for _, g := range h.view.Load().groups {
		root := "/apis/" + g.group.Name
		if g.group.Name == "" {
			root = "/api"
		} else {
			paths = append(paths, root)
		}
		for i := range g.group.Versions {
			paths = append(paths, root+"/"+g.group.Versions[i].Name)
		}
	}
	return paths
}

// ServeHTTP answers /api, /apis, /apis/<group>, /api/<version> and
// /apis/<group>/<version>; a slash may follow.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := h.view.Load()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "api" {
		core := v.groups[""]
		switch {
		case len(parts) == 1:
			h.serveStrict(w, r, v.versions, v.aggregatedCore)
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
		serve(w, r, v.list, v.aggregated)
		return
	}
	g := v.groups[parts[1]]
	switch {
	case g == nil:
		apiresponse.NotFoundPage(w)
	case len(parts) == 2:
		serve(w, r, g.document, nil)
	case g.group.Dynamic:
		if d := g.versions[parts[2]]; d != nil {
			serve(w, r, d, nil)
			return
		}
		apiresponse.NotFoundPage(w)
	case g.versions[parts[2]] != nil:
		h.serveStrict(w, r, g.versions[parts[2]], nil)
	default:
		apiresponse.Error(w, r, apierr.PathNotFound())
	}
}

// serveStrict is serve for the documents of built-in versions: GET alone, and a
// first look at Accept that words its refusal differently.
func (h *Handler) serveStrict(w http.ResponseWriter, r *http.Request, d, aggregated *document) {
	if r.Method != http.MethodGet {
		apiresponse.Error(w, r, apierr.PathMethodNotAllowed())
		return
	}
	if !apiresponse.AcceptsAny(apiresponse.ParseAccept(r.Header.Get("Accept")), apiresponse.MediaTypes()) {
		apiresponse.Error(w, r, NoRepresentation(apiresponse.MediaTypes()...))
		return
	}
	serve(w, r, d, aggregated)
}

// NoRepresentation refuses an Accept header on a path that has fixed types.
func NoRepresentation(types ...string) error {
	return apiresponse.NotAcceptable("406: Not Acceptable\n\nAvailable representations: "+strings.Join(types, ", "), true)
}

// serve writes the aggregated document if any accepted range asks for it, whatever
// its weight; the plain one otherwise.
func serve(w http.ResponseWriter, r *http.Request, d, aggregated *document) {
	clauses := apiresponse.ParseAccept(r.Header.Get("Accept"))
	if aggregated != nil {
		for i := range clauses {
			if mediaType, ok := aggregatedType(&clauses[i]); ok {
				aggregated.serve(w, r, mediaType)
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

func aggregatedType(c *apiresponse.Clause) (string, bool) {
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
