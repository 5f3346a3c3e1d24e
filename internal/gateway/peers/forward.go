package peers

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/access/auth/requestheader"
	"github.com/keelson-dev/keelson/internal/gateway/filter/deadline"
	"github.com/keelson-dev/keelson/internal/machinery/proxy"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// Header is the header of a request that a peer has forwarded. Such a request is never forwarded again, so that servers that
// are wrong about each other do not send it round in circles. It gives no rights: a client that sends it only gets what this
// server serves itself.
const Header = "X-Kubernetes-Peer-Proxied"

// Find returns the handler that forwards a request to a peer that serves the resource of the request. It returns
// nil if no peer does, and for a request that a peer has forwarded. The caller has to know that this server does
// not serve the resource.
func (p *Peers) Find(r *http.Request) http.Handler {
	info := request.InfoFrom(r.Context())
	if info.Resource == "" || r.Header.Get(Header) == "true" {
		return nil
	}
	gvr := schema.GroupVersionResource{Group: info.Group, Version: info.Version, Resource: info.Resource}
	servers := p.current.Load().serving(gvr)
	if len(servers) == 0 {
		return nil
	}
	return &forwarder{p: p, gvr: gvr, servers: servers}
}

// forwarder forwards requests for one resource.
type forwarder struct {
	p       *Peers
	gvr     schema.GroupVersionResource
	servers []string // that serve the resource
}

// address returns the address of one of the servers.
func (f *forwarder) address(ctx context.Context) (string, error) {
	var errs []error
	for _, i := range rand.Perm(len(f.servers)) {
		address, err := Address(ctx, f.p.o.Store, f.servers[i])
		if err == nil {
			return address, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// ServeHTTP implements http.Handler.
func (f *forwarder) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	ctx := in.Context()
	user := request.UserFrom(ctx)
	if user == nil {
		http.Error(w, "missing user", http.StatusInternalServerError)
		return
	}
	if why := proxy.Refusal(in); why != "" {
		http.Error(w, why, http.StatusBadRequest)
		return
	}
	if authz.IsConstrained(ctx) && !isPlainRead(in) {
		err := errors.New("another API server serves this resource, and it would not know what constrained impersonation allows; " +
			"only reads are forwarded")
		apiresponse.Error(w, in, kerrors.NewForbidden(f.gvr.GroupResource(), request.InfoFrom(ctx).Name, err))
		return
	}
	rw := responserecorder.Wrap(w)
	longRunning := deadline.LongRunning(request.InfoFrom(ctx)) || proxy.IsUpgrade(in)
	if !longRunning {
		// A peer that does not respond must not use up the limit of requests that this server handles itself.
		seat := f.p.budget.AccountFor(user)
		if !seat.Take(1) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests wait for other API servers", http.StatusTooManyRequests)
			return
		}
		defer seat.Release()
	}
	rw.ReleaseSeat()
	address, err := f.address(ctx)
	if err != nil {
		f.unresolved(rw, in, err)
		return
	}
	u := &url.URL{Scheme: "https", Host: address, Path: in.URL.Path, RawPath: in.URL.RawPath, RawQuery: in.URL.RawQuery}
	header := requestheader.Headers(user)
	header.Set("X-Forwarded-Host", u.Host)
	header.Set("X-Forwarded-Proto", u.Scheme)
	header.Set(Header, "true")
	handler := proxy.Handler{
		Target: proxy.Target{
			URL: u, Transport: f.p.transport.Load(), Addresses: []string{address}, Host: address, Header: header,
		},
		// The paths are equal, so links stay as they are; the Rewriter sets X-Forwarded-Uri and removes CORS headers.
		Rewrite: proxy.NewRewriter(in.URL.Path, in.URL.Path), LongRunning: longRunning, Error: f.failed,
	}
	handler.ServeHTTP(rw, in)
	f.p.metrics.rerouted(rw.Status, f.gvr.Group, f.gvr.Version, f.gvr.Resource)
}

// isPlainRead reports whether a request needs no permission other than the one for its verb, which this server has checked. A
// peer authorizes a request by the impersonated user alone. It does not know which verbs the sender may use in the name of that
// user, and so would allow what authz.Further refuses here: reads of the past, updates that create, escalate, bind, connections
// by GET.
func isPlainRead(r *http.Request) bool {
	info := request.InfoFrom(r.Context())
	switch info.Verb {
	case "get", "list", "watch":
		return (info.Subresource == "" || info.Subresource == "status" || info.Subresource == "scale") && !r.URL.Query().Has("asOf")
	}
	return false
}

// unresolved responds to a request for a resource whose servers have no address.
func (f *forwarder) unresolved(w http.ResponseWriter, r *http.Request, err error) {
	f.p.o.Log.Warn("no address of an API server that serves a resource", "resource", f.gvr, "error", err)
	f.p.metrics.proxyErrors.WithLabelValues("endpoint_resolution", f.gvr.Group, f.gvr.Version, f.gvr.Resource).Inc()
	apiresponse.Error(w, r,
		kerrors.NewServiceUnavailable("Error getting ip and port info of the remote server while proxying"))
}

// failed answers a request that could not be forwarded.
func (f *forwarder) failed(w http.ResponseWriter, r *http.Request, err error) {
	if ended := r.Context().Err(); ended != nil {
		apiresponse.Error(w, r, ended)
		return
	}
	f.p.o.Log.Warn("a request could not be forwarded to another API server", "resource", f.gvr, "error", err)
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}
