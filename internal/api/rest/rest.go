// Package rest serves the API's verbs over HTTP; each verb has its file. It reads objects through package
// registry. Most reads copy encoded bytes. Only writes, tables, and reads in a version that is not the stored one
// decode objects.
//
// A write reads the request (writerequest.go), decodes the body (body.go, patch.go) and calls package write, which
// has all further steps.
package rest

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	apipath "k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/api/blockers"
	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/api/undelete"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Options are the dependencies of the verbs.
type Options struct {
	Registry *registry.Registry
	// Writes executes all writes; nil means a pipeline that admits everything.
	Writes *write.Pipeline
	// Authorizer decides whether a user may connect to a pod; nil allows all users.
	Authorizer authz.Authorizer
	// Cluster finds nodes, pods and services; nil means 503 for requests that are forwarded to them.
	Cluster registry.Cluster
	// ConnectionBytesPerSecond limits each direction of a connection to a node, pod or service that was upgraded to
	// another protocol. 0 means no limit.
	ConnectionBytesPerSecond int64
	// ConnectObserver counts connections to pods; nil counts nothing.
	ConnectObserver *ConnectMetrics
	// Answers has the functions for a POST of kinds without stored objects (reviews). The map must not be changed
	// afterwards.
	Answers map[schema.GroupResource]registry.CreateFunc
	// Blockers finds what objects wait for; if it is nil, such requests are answered with 404.
	Blockers *blockers.Finder
	// Undelete plans how objects come back; if it is nil, such requests are answered with 404.
	Undelete *undelete.Planner
	// Computed has functions that return the objects of readable kinds without stored objects. The map must not be
	// changed afterwards.
	Computed map[schema.GroupResource]Computed
	// MinRequestTimeout is the shortest duration of a watch without timeoutSeconds. The duration is random, and
	// shorter than twice this value. Default 30 minutes.
	MinRequestTimeout time.Duration
	// WatchCounter returns a function for a resource that counts a sent event and its bytes; nil counts nothing.
	WatchCounter func(group, version, resource string) func(bytes int)
	// Created is called with each object that a client has created, before the response; nil does nothing.
	Created func(r *http.Request, s *registry.Served, o *cache.Object)
	// DeleteCollectionWorkers is the number of objects of a collection that are deleted concurrently; 0 means one.
	DeleteCollectionWorkers int
	// NameUnreadable names objects that cannot be read from the store in the errors of reads, and lets authorized
	// clients delete such objects (the gate AllowUnsafeMalformedObjectDeletion).
	NameUnreadable bool
	// WatchListGzip compresses the events of watches that begin with the objects that exist.
	WatchListGzip bool
	// CBOR serves application/cbor too.
	CBOR bool
	Now  func() time.Time
}

// Handler serves requests for resources: BuiltIn serves built-in ones, Bind custom ones.
type Handler struct {
	o          Options
	requests   requests
	answers    answers
	past       past
	unreadable unreadable
	connector  connector
}

// served is one resource in one version, with the encoded beginnings of its answers.
type served struct {
	*registry.Served
	form representation
	gr   schema.GroupResource

	typedListHead          []byte
	objectProto, listProto wire.EnvelopeHead
	fields                 *fieldSet
	deprecation            *request.Deprecation // nil if the version is not deprecated
	pageBytes              int                  // maxPageBytes, or less in tests
}

// New makes the handler.
func New(o Options) *Handler {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Writes == nil {
		o.Writes = write.New(o.Registry, nil, o.Authorizer, o.Now)
	}
	if o.WatchCounter == nil {
		o.WatchCounter = func(string, string, string) func(int) { return func(int) {} }
	}
	if o.Created == nil {
		o.Created = func(*http.Request, *registry.Served, *cache.Object) {}
	}
	if o.ConnectObserver == nil {
		o.ConnectObserver = NewConnectMetrics(&metrics.Metrics{Set: new(metrics.Set)})
	}
	if o.MinRequestTimeout == 0 {
		o.MinRequestTimeout = 30 * time.Minute
	}
	formats := negotiate.Formats{CBOR: o.CBOR}
	return &Handler{
		o: o, requests: requests{formats: formats, unsafeDeletes: o.NameUnreadable},
		answers:    answers{now: o.Now, created: o.Created},
		past:       past{rights: history.Rights{Authorizer: o.Authorizer, Registry: o.Registry}, now: o.Now},
		unreadable: unreadable{named: o.NameUnreadable, authorizer: o.Authorizer},
		connector: connector{
			formats: formats, writes: o.Writes, authorizer: o.Authorizer, cluster: o.Cluster,
			bytesPerSecond: o.ConnectionBytesPerSecond, observer: o.ConnectObserver,
		},
	}
}

// builtIn answers the requests for one version of a built-in resource.
type builtIn struct {
	h      *Handler
	served func() *served // made for the first request
}

// BuiltIn returns the handler of a version of a built-in resource.
func (h *Handler) BuiltIn(r *registry.Served) http.Handler {
	return builtIn{h, sync.OnceValue(func() *served { return newServed(r) })}
}

// newServed encodes the beginnings of answers once: they are the same for every request.
func newServed(r *registry.Served) *served {
	gv, kind := r.GVK.GroupVersion(), r.Kind
	s := &served{
		Served: r, gr: r.GroupResource(), pageBytes: maxPageBytes,
		typedListHead: scheme.JSONHead(gv.WithKind(kind.List())),
		objectProto:   wire.NewEnvelopeHead(gv.String(), kind.Name),
		listProto:     wire.NewEnvelopeHead(gv.String(), kind.List()),
		fields:        newFieldSet(kind, r.Version),
	}
	if r.Version.Warning != "" {
		s.deprecation = &request.Deprecation{Removed: r.Version.Removed}
	}
	s.form = typedRepresentation{s}
	if kind.Unstructured() {
		s.form = unstructuredRepresentation{s}
	}
	return s
}

// ServeHTTP implements http.Handler. The request's Info must be in its context.
func (b builtIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := b.serve(w, r); err != nil {
		apiresponse.Error(w, r, err)
	}
}

// serve answers a request, or returns the error to answer.
func (b builtIn) serve(w http.ResponseWriter, r *http.Request) error {
	info, s := request.InfoFrom(r.Context()), b.served()
	verb, err := b.verb(r, info, s)
	if err != nil {
		return err
	}
	if s.deprecation != nil {
		request.Warn(r.Context(), s.Version.Warning)
		audit.Annotate(r.Context(), "k8s.io/deprecated", "true")
		if removed := s.deprecation.Removed; removed != "" {
			audit.Annotate(r.Context(), "k8s.io/removed-release", removed)
		}
	}
	return b.h.serve(w, r, s, verb)
}

// serve serves a request for s by a verb, or returns the error for the response. It is common to built-in and custom
// resources.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, s *served, verb verbFunc) error {
	info := request.InfoFrom(r.Context())
	info.Tracker.Serve(s.deprecation)
	if err := checkPathName(info); err != nil {
		return err
	}
	if err := checkAsOf(r, info, s); err != nil {
		return err
	}
	// Most requests are not traced. For them r is not copied.
	if ctx, span := startVerb(w, r, info); span.Recording() {
		defer span.End()
		r = r.WithContext(ctx)
	}
	return verb(h, w, r, info, s)
}

// checkPathName refuses names that no object can have: ".", "..", and names that have a "%" or "/" after the path
// was decoded.
func checkPathName(info *request.Info) error {
	if messages := apipath.IsValidPathSegmentName(info.Name); len(messages) > 0 && info.Name != "" {
		return kerrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", info.Name, strings.Join(messages, ";")))
	}
	return nil
}

// A verbFunc answers a request or returns the error to answer.
type verbFunc func(h *Handler, w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error

// verbs are the verbs of a resource.
var verbs = map[string]verbFunc{
	"get": (*Handler).get, "list": (*Handler).list, "watch": (*Handler).watch,
	"create": (*Handler).create, "update": (*Handler).update, "patch": (*Handler).patch,
	"delete": (*Handler).delete, "deletecollection": (*Handler).deleteCollection,
}

// verb returns the function that serves a request.
func (b builtIn) verb(r *http.Request, info *request.Info, s *served) (verbFunc, error) {
	if err := b.checkNamespace(info); err != nil {
		return nil, err
	}
	// A path that no resource has gets 404 before the method is looked at, so a wrong method on it is not 405.
	if !b.scopeMatches(info) || !wellFormedPath(info) || info.Verb == "proxy" {
		return nil, apierr.PathNotFound() // nothing is served below /api/v1/proxy any more
	}
	if info.Subresource != "" {
		return s.subresourceVerb(r, info)
	}
	// Reviews have no objects with a name: such a path does not exist, and the code is 404 and not 405.
	if s.Resource.Virtual() && info.Name != "" && !s.Kind.HasVerb("get") {
		return nil, apierr.PathNotFound()
	}
	// A HEAD has the verb get, but kube-apiserver has routes for HEAD only on proxies.
	if r.Method == http.MethodHead || r.Method == http.MethodOptions {
		return nil, apierr.PathMethodNotAllowed()
	}
	verb := verbs[info.Verb]
	if verb == nil || !b.allows(r, info) {
		return nil, apierr.PathMethodNotAllowed()
	}
	if s.Resource.Virtual() {
		return b.h.virtualVerb(s, info.Verb), nil
	}
	return verb, nil
}

// wellFormedPath reports whether the path names a resource, an object or a subresource. It returns false if
// something follows an empty subresource (".../NAME//status"), and for a subresource below the deprecated path
// of a watch. For example, /api/v1/watch/nodes/n/status gets 404.
func wellFormedPath(info *request.Info) bool {
	if info.Subresource == "" {
		return info.Rest == ""
	}
	return !info.VerbInPath
}

// checkNamespace refuses the path of an object in a namespace if the name of the namespace is empty
// (".../namespaces//pods/x"). Only lists and watches across namespaces may have such a path. A path of an unknown
// subresource is not refused here: it gets 404.
func (b builtIn) checkNamespace(info *request.Info) error {
	s := b.served()
	if !s.Kind.Namespaced || !info.InNamespace || info.Namespace != "" || !wellFormedPath(info) {
		return nil
	}
	if info.Subresource != "" && s.Kind.Subresource(info.Subresource) == nil {
		return nil
	}
	switch {
	case info.Name != "":
		return kerrors.NewBadRequest("Namespace parameter required.")
	// As in kube-apiserver, a create gets 422 with the namespace of the object as the cause, and not 400.
	case info.Verb == "create" && s.Kind.HasVerb("create"):
		path := field.NewPath("metadata", "namespace")
		return kerrors.NewInvalid(s.Kind.GroupKind(), "", field.ErrorList{field.Required(path, "")})
	}
	return nil
}

// scopeMatches reports whether the scope of the resource allows the namespace in the path, or its absence. So
// /api/v1/namespaces/a is served, and /api/v1/namespaces/a/namespaces/a gets 404.
func (b builtIn) scopeMatches(info *request.Info) bool {
	s := b.served()
	if !s.Kind.Namespaced {
		// The path of a namespace itself names it as namespace and as object.
		return info.Namespace == "" || s.Kind.Resource == "namespaces" && info.Namespace == info.Name && !info.InNamespace
	}
	if info.Namespace != "" {
		return true
	}
	// Across namespaces there are only lists and watches.
	return info.Name == ""
}

// allows reports whether the resource has the verb at this path.
func (b builtIn) allows(r *http.Request, info *request.Info) bool {
	s := b.served()
	switch info.Verb {
	case "create":
		if info.Name != "" || s.Kind.Namespaced && info.Namespace == "" {
			return s.Resource.Virtual() && s.Kind.Namespaced && info.Name == "" && s.Kind.HasVerb("create")
		}
	case "update", "patch", "delete":
		if info.Name == "" {
			return false
		}
	// Objects of all namespaces cannot be deleted with one request.
	case "deletecollection":
		if s.Kind.Namespaced && info.Namespace == "" {
			return false
		}
	case "watch":
		if r.Method != http.MethodGet {
			return false
		}
		// kube-apiserver routes a watch wherever it routes a list.
		return s.Kind.HasVerb("watch") || s.Kind.HasVerb("list")
	}
	return s.Kind.HasVerb(info.Verb)
}
